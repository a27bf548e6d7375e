(class_declaration name: (identifier) @name body: (_) @body) @definition.class
(record_declaration name: (identifier) @name body: (_) @body) @definition.class
(interface_declaration name: (identifier) @name body: (_) @body) @definition.interface
(annotation_type_declaration name: (identifier) @name body: (_) @body) @definition.interface
(enum_declaration name: (identifier) @name body: (_) @body) @definition.enum
(method_declaration name: (identifier) @name) @definition.method
(method_declaration body: (_) @body)
(constructor_declaration name: (identifier) @name body: (_) @body) @definition.method
(compact_constructor_declaration name: (identifier) @name body: (_) @body) @definition.method
(field_declaration [(modifiers "static" "final") (modifiers "final" "static")]
  declarator: (variable_declarator name: (identifier) @name @also) (#match? @name "^_*[A-Z][A-Z0-9_]+$")) @definition.constant
(constant_declaration declarator: (variable_declarator name: (identifier) @name)
  (#match? @name "^_*[A-Z][A-Z0-9_]+$")) @definition.constant
(enum_constant name: (identifier) @name body: (_)) @scope
[(line_comment) (block_comment) (marker_annotation) (annotation)] @aside
