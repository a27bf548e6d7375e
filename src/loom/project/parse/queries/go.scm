(function_declaration name: (identifier) @name body: (_)? @body (#not-eq? @name "_")) @definition.function
(method_declaration name: (field_identifier) @name body: (_)? @body) @definition.method
(method_declaration receiver: (parameter_list (parameter_declaration type: (type_identifier) @parent)))
(method_declaration receiver: (parameter_list (parameter_declaration type: (generic_type type: (type_identifier) @parent))))
(method_declaration receiver: (parameter_list (parameter_declaration type: (pointer_type (type_identifier) @parent))))
(method_declaration receiver: (parameter_list (parameter_declaration type: (pointer_type (generic_type type: (type_identifier) @parent)))))
(type_spec name: (type_identifier) @name type: (struct_type (field_declaration_list) @body)) @definition.class
(type_spec name: (type_identifier) @name type: (interface_type "{" @body)) @definition.interface
(type_spec name: (type_identifier) @name) @definition.type
(type_alias name: (type_identifier) @name) @definition.type
(interface_type (method_elem name: (field_identifier) @name) @definition.method)
(source_file (const_declaration (const_spec (identifier) @name @also (#not-eq? @name "_")) @definition.constant))
(short_var_declaration left: (expression_list . (identifier) @name .)
  right: (expression_list . (func_literal body: (_) @body) .)) @definition.function
(source_file (var_declaration (var_spec name: (identifier) @name value: (expression_list . (func_literal body: (_) @body) .)) @definition.function))

(type_declaration "type" @keyword) @around
(const_declaration "const" @keyword) @around
(var_declaration "var" @keyword) @around
(comment) @aside
