(class_declaration name: (name) @name body: (_) @body) @definition.class
(trait_declaration name: (name) @name body: (_) @body) @definition.class
(interface_declaration name: (name) @name body: (_) @body) @definition.interface
(enum_declaration name: (name) @name body: (_) @body) @definition.enum
(function_definition name: (name) @name body: (_) @body) @definition.function
(method_declaration name: (name) @name) @definition.method
(method_declaration body: (_) @body)
(namespace_definition name: (_) @name body: (_) @body) @definition.module
(program (const_declaration (const_element . (name) @name)) @definition.constant)
(namespace_definition body: (_ (const_declaration (const_element . (name) @name)) @definition.constant))
(expression_statement (function_call_expression function: (name) @_define
  arguments: (arguments . (argument (string (string_content) @name)))) (#eq? @_define "define")) @definition.constant
[(comment) (attribute_list)] @aside
