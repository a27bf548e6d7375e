(class name: (_) @name) @definition.class
(module name: (_) @name) @definition.module
(method name: (_) @name) @definition.method
(singleton_method name: (_) @name) @definition.method
(assignment left: (constant) @name right: (call receiver: (constant) @_maker method: (identifier) block: (_) @body)
  (#any-of? @_maker "Struct" "Class" "Data" "Module")) @definition.class
(class ["end" (body_statement)] @body)
(module ["end" (body_statement)] @body)
(method ["end" "=" (body_statement)] @body)
(singleton_method ["end" "=" (body_statement)] @body)
(program (assignment left: (constant) @name (#match? @name "^[A-Z][A-Z0-9_]+$")) @definition.constant)
(module body: (body_statement (assignment left: (constant) @name (#match? @name "^[A-Z][A-Z0-9_]+$")) @definition.constant))
(class body: (body_statement (assignment left: (constant) @name (#match? @name "^[A-Z][A-Z0-9_]+$")) @definition.constant))
(call method: (identifier) @_word arguments: (argument_list . [(simple_symbol) @name (string . (string_content) @name .)])
  block: (_) @body (#eq? @_word "define_method")) @definition.method
(comment) @aside
