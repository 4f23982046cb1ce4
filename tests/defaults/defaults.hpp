// The defaults of calls, sessions, policies and embedding tables, in C++ and in C, as one table. The tests compare each
// value with the code, and docs/reference/defaults.md with the text that document() makes from the table.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "gradwire/policy.hpp"

namespace gradwire::test {

/// One value: its text in the document, and how it is read from the code.
struct Default {
  std::string text;
  std::function<std::string()> in_code = nullptr;  // null if nothing can be set: then `text` says what holds
};

struct DefaultRow {
  std::string what;
  std::vector<Default> values;  // one per column
};

struct DefaultTable {
  std::string title;
  std::vector<std::string> columns;
  std::vector<DefaultRow> rows = {};
};

[[nodiscard]] DefaultTable call_and_session_defaults();
/// The keys of policies that calls and sessions lack. They are compared with the code alone: docs/reference/policy.md
/// lists them.
[[nodiscard]] DefaultTable policy_defaults();
[[nodiscard]] DefaultTable table_defaults();

/// Returns the text of docs/reference/defaults.md.
[[nodiscard]] std::string document();

}  // namespace gradwire::test
