(class_declaration name: (identifier) @name) @definition.class
(struct_declaration name: (identifier) @name) @definition.class
(record_declaration name: (identifier) @name) @definition.class
(interface_declaration name: (identifier) @name) @definition.interface
(enum_declaration name: (identifier) @name) @definition.enum
(delegate_declaration name: (identifier) @name) @definition.type
(namespace_declaration name: (_) @name) @definition.module
(method_declaration name: (identifier) @name) @definition.method
(constructor_declaration name: (identifier) @name) @definition.method
(destructor_declaration name: (identifier) @name) @definition.method
(operator_declaration "operator" @name operator: _ @more) @definition.method
(conversion_operator_declaration "operator" @name type: (_) @more) @definition.method
(indexer_declaration "this" @name parameters: (bracketed_parameter_list "[" @more "]" @more) accessors: (_)? @body) @definition.method
(local_function_statement name: (identifier) @name) @definition.function
(property_declaration name: (identifier) @name value: (arrow_expression_clause) @body) @definition.method
(property_declaration name: (identifier) @name
  accessors: (accessor_list (accessor_declaration body: (_))) @body) @definition.method
[(declaration_list) (enum_member_declaration_list) (block) (arrow_expression_clause) (constructor_initializer)] @body
[(comment) (attribute_list)] @aside
