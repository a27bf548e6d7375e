(class_declaration name: (identifier) @name body: (_) @body) @definition.class
(field_definition property: (_) @name
  value: [(arrow_function body: (_) @body) (function_expression body: (_) @body)]) @definition.method
