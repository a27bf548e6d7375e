(class_definition name: (identifier) @name) @definition.class
(object_definition name: (identifier) @name) @definition.class
(trait_definition name: (identifier) @name) @definition.interface
(enum_definition name: (identifier) @name body: (_) @body) @definition.enum
(package_object name: (identifier) @name body: (_) @body) @definition.module
(given_definition name: (identifier) @name) @scope
(extension_definition parameters: (parameters (parameter type: (type_identifier) @name))) @scope
(extension_definition parameters: (parameters (parameter type: (generic_type type: (type_identifier) @name)))) @scope
(class_definition body: (_) @body)
(object_definition body: (_) @body)
(trait_definition body: (_) @body)
(type_definition name: (type_identifier) @name) @definition.type
(function_definition name: (_) @name body: (_) @body) @definition.function
(function_declaration name: (_) @name) @definition.function
(compilation_unit (val_definition pattern: (identifier) @name
  (#match? @name "^_*[A-Z][A-Z0-9_]+$")) @definition.constant)
[(comment) (block_comment) (annotation)] @aside
