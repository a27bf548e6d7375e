((call target: (identifier) @_word (arguments . (alias) @name) (do_block) @body) @definition.module
  (#eq? @_word "defmodule"))
((call target: (identifier) @_word (arguments . (alias) @name) (do_block) @body) @definition.interface
  (#eq? @_word "defprotocol"))
((call target: (identifier) @_word (arguments . (alias) (keywords (pair value: (alias) @name))) (do_block) @body) @scope
  (#eq? @_word "defimpl"))
((call target: (identifier) @_word (arguments . [
    (identifier) @name
    (call target: (identifier) @name)
    (binary_operator left: (identifier) @name operator: "when")
    (binary_operator left: (call target: (identifier) @name) operator: "when")
    (binary_operator operator: _ @name)
    (binary_operator left: (binary_operator operator: _ @name) operator: "when")
    (unary_operator operator: _ @name)
  ])) @definition.function
  (#any-of? @_word "def" "defp" "defdelegate" "defn" "defnp") (#not-eq? @name "when"))
((call target: (identifier) @_word (arguments . [
    (identifier) @name
    (call target: (identifier) @name)
    (binary_operator left: (identifier) @name operator: "when")
    (binary_operator left: (call target: (identifier) @name) operator: "when")
    (binary_operator operator: _ @name)
    (binary_operator left: (binary_operator operator: _ @name) operator: "when")
    (unary_operator operator: _ @name)
  ])) @definition.macro
  (#any-of? @_word "defmacro" "defmacrop" "defguard" "defguardp") (#not-eq? @name "when"))
((call target: (identifier) @_word (do_block) @body)
  (#any-of? @_word "def" "defp" "defmacro" "defmacrop" "defn" "defnp"))
((call target: (identifier) @_word (arguments (_) (keywords . (pair key: (keyword) @body))))
  (#any-of? @_word "def" "defp" "defmacro" "defmacrop" "defdelegate"))
(unary_operator operator: "@") @aside
(comment) @aside
