(variable_declarator name: (identifier) @name value: (class body: (_) @body)) @definition.class
(function_declaration name: (identifier) @name body: (_) @body) @definition.function
(generator_function_declaration name: (identifier) @name body: (_) @body) @definition.function
(arguments (function_expression name: (identifier) @name body: (_) @body) @definition.function)
(variable_declarator name: (identifier) @name
  value: [(arrow_function body: (_) @body) (function_expression body: (_) @body) (generator_function body: (_) @body)]
) @definition.function
(assignment_expression left: (identifier) @name
  right: [(arrow_function body: (_) @body) (function_expression body: (_) @body)]) @definition.function

; Components and hooks that something wraps: const Panel = memo(() => …).
(variable_declarator name: (identifier) @name
  value: (call_expression arguments: (arguments . [(arrow_function body: (_) @body) (function_expression !name body: (_) @body)]))
  (#match? @name "^([A-Z].*[a-z]|use[A-Z])")) @definition.function
(variable_declarator name: (identifier) @name
  value: (call_expression arguments: (arguments . (call_expression
    arguments: (arguments . [(arrow_function body: (_) @body) (function_expression !name body: (_) @body)]))))
  (#match? @name "^([A-Z].*[a-z]|use[A-Z])")) @definition.function

(method_definition name: (_) @name body: (_) @body) @definition.method
(variable_declarator name: (identifier) @name value: (object)) @scope
(variable_declarator value: (object (pair key: (_) @name value: (arrow_function body: (_) @body)) @definition.method))
(assignment_expression right: (object (pair key: (_) @name value: (arrow_function body: (_) @body)) @definition.method))
(export_statement value: (object (pair key: (_) @name value: (arrow_function body: (_) @body)) @definition.method))
(pair key: (_) @name value: [(arrow_function body: (statement_block) @body) (function_expression body: (_) @body)]) @definition.method

; exports.x = …, module.exports.x = …, this.x = …
(assignment_expression
  left: (member_expression object: [(identifier) (member_expression) (this)] @_object property: (_) @name)
  right: [(arrow_function body: (_) @body) (function_expression body: (_) @body)]
  (#any-of? @_object "exports" "module.exports" "this")) @definition.function
; module.exports = …
(assignment_expression
  left: (member_expression object: (identifier) @_object property: (property_identifier) @name)
  right: [(arrow_function body: (_) @body) (function_expression !name body: (_) @body)]
  (#eq? @_object "module") (#eq? @name "exports")) @definition.function
(assignment_expression
  left: (member_expression object: (identifier) @_object property: (property_identifier) @_exports)
  right: (function_expression name: (identifier) @name body: (_) @body)
  (#eq? @_object "module") (#eq? @_exports "exports")) @definition.function
; thing.x = …, Thing.prototype.x = …, App.Things.x = …
(assignment_expression
  left: (member_expression object: (identifier) @parent property: (_) @name)
  right: [(arrow_function body: (_) @body) (function_expression body: (_) @body)]
  (#not-match? @parent "^(exports|module)$")) @definition.method
(assignment_expression
  left: (member_expression object: (member_expression
    object: [(identifier) @parent (member_expression property: (property_identifier) @parent)]
    property: (property_identifier) @_prototype) property: (_) @name)
  right: [(arrow_function body: (_) @body) (function_expression body: (_) @body)]
  (#eq? @_prototype "prototype")) @definition.method
(assignment_expression
  left: (member_expression object: (member_expression property: (property_identifier) @parent) property: (_) @name)
  right: [(arrow_function body: (_) @body) (function_expression body: (_) @body)]
  (#not-match? @parent "^(exports|prototype)$")) @definition.method

; What has no name but that it is exported.
(export_statement "default" @name
  value: [(arrow_function body: (_) @body) (function_expression !name body: (_) @body)]) @definition.function
(export_statement "default" @name value: (class !name body: (_) @body)) @definition.class

(program (lexical_declaration (variable_declarator name: (identifier) @name
  (#match? @name "^_*[A-Z][A-Z0-9_]+$")) @definition.constant))
(program (export_statement (lexical_declaration (variable_declarator name: (identifier) @name
  (#match? @name "^_*[A-Z][A-Z0-9_]+$")) @definition.constant)))
(program (export_statement (lexical_declaration (variable_declarator
  name: (identifier) @name value: [(call_expression) (new_expression)]) @definition.constant)))
(export_statement) @around
(lexical_declaration ["const" "let"] @keyword) @around
(variable_declaration "var" @keyword) @around
[(comment) (decorator)] @aside
