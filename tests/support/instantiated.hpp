// Templates that many tests use, compiled once in instantiated.cpp: they took two thirds of the time to compile a small
// test. The tests' precompiled headers include this file, tests themselves do not.
#pragma once

#include <nlohmann/json.hpp>
#include <regex>
#include <string>

// NOLINTBEGIN(cert-dcl58-cpp, bugprone-macro-parentheses): instantiations of the library's own templates
#define GRADWIRE_INSTANTIATE(prefix)            \
  prefix template class std::basic_regex<char>; \
  prefix template class nlohmann::basic_json<>; \
  prefix template class nlohmann::detail::serializer<nlohmann::json>;

// Of version 3.11, a reader of files and one of strings. Their names are not the library's public ones, so that another
// version does without.
#if NLOHMANN_JSON_VERSION_MAJOR == 3 && NLOHMANN_JSON_VERSION_MINOR == 11
#define GRADWIRE_INSTANTIATE_PARSER(prefix, adapter)                                          \
  prefix template class nlohmann::detail::lexer<nlohmann::json, adapter>;                     \
  prefix template class nlohmann::detail::parser<nlohmann::json, adapter>;                    \
  prefix template bool nlohmann::detail::parser<nlohmann::json, adapter>::sax_parse_internal( \
      nlohmann::detail::json_sax_dom_parser<nlohmann::json>*);                                \
  prefix template bool nlohmann::detail::parser<nlohmann::json, adapter>::sax_parse_internal( \
      nlohmann::detail::json_sax_dom_callback_parser<nlohmann::json>*);
#else
#define GRADWIRE_INSTANTIATE_PARSER(prefix, adapter)
#endif
// NOLINTEND(cert-dcl58-cpp, bugprone-macro-parentheses)

namespace gradwire::test {
using FileAdapter = nlohmann::detail::input_stream_adapter;
using StringAdapter = nlohmann::detail::iterator_input_adapter<std::string::const_iterator>;
}  // namespace gradwire::test

GRADWIRE_INSTANTIATE(extern)
GRADWIRE_INSTANTIATE_PARSER(extern, gradwire::test::FileAdapter)
GRADWIRE_INSTANTIATE_PARSER(extern, gradwire::test::StringAdapter)
