(class_declaration "class" name: (identifier) @name) @definition.class
(class_declaration (modifiers) @_words "class" name: (identifier) @name (enum_class_body) @body
  (#match? @_words "enum")) @definition.enum
(class_declaration (enum_class_body) @body)
(class_declaration "interface" name: (identifier) @name) @definition.interface
(object_declaration name: (identifier) @name) @definition.class
(companion_object name: (identifier) @name) @scope
(class_body) @body
(type_alias type: (identifier) @name) @definition.type
(function_declaration name: (identifier) @name) @definition.function
(function_declaration (function_body) @body)
(function_declaration (user_type (identifier) @parent) . name: (identifier))
(function_declaration (nullable_type (user_type (identifier) @parent)) . name: (identifier))
(secondary_constructor "constructor" @name) @definition.method
(secondary_constructor (block) @body)
(property_declaration (variable_declaration . (identifier) @name) (getter) @body) @definition.method
(enum_entry (identifier) @name (class_body)) @scope
(source_file (property_declaration (variable_declaration . (identifier) @name
  (#match? @name "^_*[A-Z][A-Z0-9_]+$"))) @definition.constant)
[(line_comment) (block_comment) (annotation)] @aside
