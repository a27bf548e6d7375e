(function_definition) @definition.function
(function_definition body: (_) @body)
(function_definition [(field_initializer_list) (default_method_clause) (delete_method_clause)] @body)
(declaration declarator: (function_declarator)) @declared.function
(declaration declarator: (pointer_declarator declarator: (function_declarator))) @declared.function
(declaration declarator: (reference_declarator (function_declarator))) @declared.function
(field_declaration declarator: (function_declarator)) @definition.method
(field_declaration declarator: (pointer_declarator declarator: (function_declarator))) @definition.method
(field_declaration declarator: (reference_declarator (function_declarator))) @definition.method
(field_declaration_list (declaration declarator: (function_declarator)) @definition.method)
(field_declaration_list (template_declaration (declaration declarator: (function_declarator)) @definition.method))
(function_declarator declarator: [
  (identifier) (field_identifier) (qualified_identifier) (destructor_name) (operator_name)
] @name)
(operator_cast "operator" @name type: (_) @more)
(qualified_identifier scope: (_) @parent name: (operator_cast))
(declaration declarator: (operator_cast)) @definition.method
(function_declarator declarator: (template_function name: (_) @name))
(class_specifier name: [(type_identifier) (qualified_identifier)] @name body: (_) @body) @definition.class
(class_specifier name: (template_type name: (_) @name) body: (_) @body) @definition.class
(struct_specifier name: [(type_identifier) (qualified_identifier)] @name body: (_) @body) @definition.class
(struct_specifier name: (template_type name: (_) @name) body: (_) @body) @definition.class
(union_specifier name: (type_identifier) @name body: (_) @body) @definition.class
(enum_specifier name: (_) @name body: (_) @body) @definition.enum
(alias_declaration name: (type_identifier) @name) @definition.type
(concept_definition name: (identifier) @name) @definition.type
(type_definition type: [(struct_specifier !name body: (_) @body) (union_specifier !name body: (_) @body)]
  declarator: (type_identifier) @name) @definition.class
(type_definition type: [(struct_specifier body: (_) @body) (union_specifier body: (_) @body) (enum_specifier body: (_) @body)]
  declarator: (type_identifier) @name) @definition.type
(type_definition declarator: (type_identifier) @name) @definition.type
(type_definition declarator: (pointer_declarator declarator: (type_identifier) @name)) @definition.type
(namespace_definition name: (_) @name body: (_) @body) @definition.module
(preproc_function_def name: (identifier) @name value: (_) @body) @definition.macro
(preproc_def name: (identifier) @name value: (_) (#match? @name "^_*[A-Z][A-Z0-9_]+$")) @definition.constant
(declaration (type_qualifier) declarator: (init_declarator declarator: [
  (identifier) @name
  (pointer_declarator declarator: (identifier) @name)
  (array_declarator declarator: (identifier) @name)
] (#match? @name "^_*[A-Z][A-Z0-9_]+$"))) @definition.constant
(template_declaration) @head
[(comment) (attribute_specifier) (attribute_declaration) (ms_declspec_modifier)] @aside
