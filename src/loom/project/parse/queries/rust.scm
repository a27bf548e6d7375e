(struct_item name: (type_identifier) @name) @definition.class
(struct_item body: (field_declaration_list) @body)
(union_item name: (type_identifier) @name body: (_) @body) @definition.class
(enum_item name: (type_identifier) @name body: (_) @body) @definition.enum
(type_item name: (type_identifier) @name) @definition.type
(trait_item name: (type_identifier) @name body: (_) @body) @definition.interface
(mod_item name: (identifier) @name body: (_) @body) @definition.module
(function_item name: (identifier) @name body: (_) @body) @definition.function
(function_signature_item name: (identifier) @name) @definition.function
(macro_definition name: (identifier) @name ["(" "{" "["] @body) @definition.macro
(const_item name: (identifier) @name) @definition.constant
(static_item name: (identifier) @name) @definition.constant

(impl_item) @scope
(impl_item type: (type_identifier) @name)
(impl_item type: (generic_type type: (type_identifier) @name))
(impl_item type: (generic_type type: (scoped_type_identifier name: (type_identifier) @name)))
(impl_item type: (scoped_type_identifier name: (type_identifier) @name))
(impl_item type: (reference_type type: (type_identifier) @name))
[(line_comment) (block_comment) (attribute_item)] @aside
