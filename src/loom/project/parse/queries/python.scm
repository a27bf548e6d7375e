(class_definition name: (identifier) @name body: (_) @body) @definition.class
(function_definition name: (identifier) @name body: (_) @body) @definition.function
(decorated_definition) @around
(type_alias_statement left: (type [(identifier) @name (generic_type . (identifier) @name)])) @definition.type
(module (expression_statement (assignment left: (identifier) @name
  (#match? @name "^_*[A-Z][A-Z0-9_]+$"))) @definition.constant)
(module (expression_statement (assignment left: (identifier) @name right: (lambda body: (_) @body))) @definition.function)
(comment) @aside
