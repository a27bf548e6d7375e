(class_declaration ["class" "struct" "actor"] name: (type_identifier) @name body: (_) @body) @definition.class
(class_declaration "enum" name: (type_identifier) @name body: (_) @body) @definition.enum
(class_declaration "extension" name: (_) @name body: (_) @body) @scope
(protocol_declaration name: (type_identifier) @name body: (_) @body) @definition.interface
(typealias_declaration name: (type_identifier) @name) @definition.type
(function_declaration "func" . _ @name body: (_) @body) @definition.function
(protocol_function_declaration "func" . _ @name) @definition.method
(init_declaration "init" @name) @definition.method
(init_declaration body: (_) @body)
(deinit_declaration "deinit" @name body: (_) @body) @definition.method
(subscript_declaration "subscript" @name (computed_property) @body) @definition.method
(property_declaration name: (pattern bound_identifier: (simple_identifier) @name) computed_value: (_) @body) @definition.method
(source_file (property_declaration name: (pattern bound_identifier: (simple_identifier) @name
  (#match? @name "^_*[A-Z][A-Z0-9_]+$"))) @definition.constant)
[(comment) (multiline_comment) (attribute)] @aside
