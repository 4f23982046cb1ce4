#include "tests/defaults/defaults.hpp"

namespace gradwire::test {
namespace {

constexpr const char* kHead = R"(# Defaults

This page says what holds where a program sets nothing. `defaults_test` compares it with the code. [Policy
files](policy.md), [environment variables](environment.md) and the drop-ins have further defaults.

)";

constexpr const char* kNotes = R"(
- **Columns.** A call is an all-reduce, a reduce-scatter, an all-gather or a broadcast of a communicator, over MPI, threads or NCCL. Where
  a cell says "policy", the policy of the session decides. `Policy()`, in C a policy of `NULL`, says the same as an empty file.
- **Algorithm.** `auto` takes the quickest by the [cost model](policy.md#which-algorithm), over device memory always `two_shot`. In C,
  0 [stays](c-abi.md) `two_shot`; `GRADWIRE_ALGORITHM_AUTO` asks for the choice. Name an algorithm where results must not depend on
  how ranks lie on hosts, because algorithms add in different orders.
- **Broadcasts** bring parameters, so they are exact. A call may name a codec; a session cannot.
- **Sum or mean.** A call sums as MPI does; a session averages, as a training step wants.
- **Error feedback.** A call keeps what it drops only in a `FeedbackBuffer` of the caller. [Policies](policy.md#defaults) say when `auto`
  turns feedback on, and which codec the second hop has.
- **Threading.** A session over MPI does with less where `MPI_Init_thread` granted less.
- **NaN and Inf.** `auto` lets them reach every rank, and skips such steps once a loss scale was set.
- **Link.** While it is unknown, the cost model assumes 1 Gbit/s and 50 us between nodes, and calls learn how much to keep in flight.

)";

std::string line_of(const std::vector<std::string>& cells) {
  std::string line = "|";
  for (const std::string& cell : cells) {
    line += (cell.empty() ? " " : " " + cell + " ") + "|";
  }
  return line + "\n";
}

std::string text_of(const DefaultTable& table) {
  std::vector<std::string> head{""};
  head.insert(head.end(), table.columns.begin(), table.columns.end());
  std::string text = "## " + table.title + "\n\n" + line_of(head) + "|";
  for (std::size_t i = 0; i < head.size(); ++i) {
    text += "---|";
  }
  text += "\n";
  for (const DefaultRow& row : table.rows) {
    std::vector<std::string> cells{row.what};
    for (const Default& value : row.values) {
      cells.push_back(value.text);
    }
    text += line_of(cells);
  }
  return text;
}

}  // namespace

std::string document() {
  return kHead + text_of(call_and_session_defaults()) + kNotes + text_of(table_defaults()) +
         "\nWhat each of these does: [embedding tables](../explanation/tables.md).\n";
}

}  // namespace gradwire::test
