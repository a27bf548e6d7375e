(function_definition body: (_) @body) @definition.function
(declaration declarator: (function_declarator)) @declared.function
(declaration declarator: (pointer_declarator declarator: (function_declarator))) @declared.function
(declaration declarator: (pointer_declarator declarator: (pointer_declarator declarator: (function_declarator)))) @declared.function
(function_declarator declarator: (identifier) @name)
(struct_specifier name: (type_identifier) @name body: (_) @body) @definition.class
(union_specifier name: (type_identifier) @name body: (_) @body) @definition.class
(enum_specifier name: (type_identifier) @name body: (_) @body) @definition.enum
(type_definition type: [(struct_specifier !name body: (_) @body) (union_specifier !name body: (_) @body)]
  declarator: (type_identifier) @name) @definition.class
(type_definition type: [(struct_specifier body: (_) @body) (union_specifier body: (_) @body) (enum_specifier body: (_) @body)]
  declarator: (type_identifier) @name) @definition.type
(type_definition declarator: (type_identifier) @name) @definition.type
(type_definition declarator: (pointer_declarator declarator: (type_identifier) @name)) @definition.type
(type_definition declarator: (function_declarator declarator: (parenthesized_declarator
  (pointer_declarator declarator: (type_identifier) @name)))) @definition.type
(preproc_function_def name: (identifier) @name value: (_) @body) @definition.macro
(preproc_def name: (identifier) @name value: (_) (#match? @name "^_*[A-Z][A-Z0-9_]+$")) @definition.constant
(declaration (type_qualifier) declarator: (init_declarator declarator: [
  (identifier) @name
  (pointer_declarator declarator: (identifier) @name)
  (array_declarator declarator: (identifier) @name)
] (#match? @name "^_*[A-Z][A-Z0-9_]+$"))) @definition.constant
[(comment) (attribute_specifier) (attribute_declaration) (ms_declspec_modifier)] @aside
