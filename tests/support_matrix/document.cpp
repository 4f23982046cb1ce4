// Writes docs/reference/support.md from the rows of the matrix.
#include <algorithm>
#include <sstream>
#include <vector>

#include "tests/support_matrix/matrix.hpp"

namespace gradwire::support {
namespace {

constexpr std::size_t kColumns = 140;

constexpr const char* kIntroduction = R"(
This page is written by a test, from the table in [`tests/support_matrix`](../../tests/support_matrix): change that, and write
the page anew with `WRITE=1 build/release/bin/support_matrix_test --gtest_filter='*Document*'`. The test plays each yes and
each no of the matrix, and each error below, and fails where one is not as this page says.)";

constexpr const char* kColumnsOfTheMatrix = R"(
*host*: host memory over a `Transport`, such as MPI. *Processes*: over `gradwire::Processes`, which some ranks may leave
([elastic](../explanation/elastic.md)). *GPU*: device memory over a `Transport` or `Processes` ([`gradwire/cuda.hpp`](../how-to/gpu.md)). *NCCL*:
device memory over NCCL. *C*: the [C API](c-abi.md), over MPI. Columns of device memory are played on a device that is host
memory; CUDA and NCCL have no part in that ([what ran on a GPU](../how-to/gpu.md#what-has-been-tried)). *no call*: no header of that
place has it. A number leads to a note.)";

constexpr const char* kErrors = R"(
What a comment of a public header says of `Error(invalid_argument)` and `Error(unsupported)`, and a piece of what the error
then says. A header that promises one without a row here fails the test.)";

/// Returns the words of `text` in lines of that width; lines after the first begin with `indent`.
std::string wrapped(const std::string& text, const std::string& indent = "") {
  std::istringstream words(text);
  std::string all;
  std::string line;
  for (std::string word; words >> word;) {
    if (!line.empty() && line.size() + 1 + word.size() > kColumns) {
      all += line + "\n";
      line = indent + word;
    } else {
      line += (line.empty() ? "" : " ") + word;
    }
  }
  return all + line + "\n";
}

std::string code(std::string_view text) { return "`" + std::string(text) + "`"; }

std::string code_of(const ErrorCode code) { return "`Error(" + std::string(to_string(code)) + ")`"; }

/// The notes of cells beyond yes and no, numbered in order of their first use.
class Notes {
 public:
  std::string mark(const Cell& cell) {
    switch (cell.kind) {
      case Cell::Kind::works: return "yes";
      case Cell::Kind::differs: return "yes (" + number_of(std::string(cell.text)) + ")";
      case Cell::Kind::refused: return "**no** (" + number_of(refusal(cell)) + ")";
      case Cell::Kind::absent: return "no call";
      case Cell::Kind::none: return "- (" + number_of(std::string(cell.text)) + ")";
    }
    return "";
  }
  [[nodiscard]] std::string text() const {
    std::string all;
    for (std::size_t i = 0; i < notes_.size(); ++i) {
      all += wrapped(std::to_string(i + 1) + ". " + notes_[i], "   ");
    }
    return all;
  }

 private:
  static std::string refusal(const Cell& cell) {
    const std::string not_played =
        cell.not_played.empty() ? "" : " (not played by a test: " + std::string(cell.not_played) + ")";
    return code_of(cell.code) + ": " + code(cell.text) + not_played;
  }
  std::string number_of(const std::string& note) {
    const auto found = std::find(notes_.begin(), notes_.end(), note);
    const auto index = static_cast<std::size_t>(found - notes_.begin());
    if (found == notes_.end()) {
      notes_.push_back(note);
    }
    return std::to_string(index + 1);
  }

  std::vector<std::string> notes_;
};

std::string matrix(Notes& notes) {
  std::string all = "| feature |";
  std::string rule = "|---|";
  for (std::size_t place = 0; place < kPlaces; ++place) {
    all += " " + std::string(to_string(static_cast<Place>(place))) + " |";
    rule += "---|";
  }
  all += "\n" + rule + "\n";
  std::string_view group;
  for (const Feature& feature : features()) {
    if (feature.group != group) {
      group = feature.group;
      all += "| **" + std::string(group) + "** | | | | | | |\n";
    }
    all += "| " + std::string(feature.name) + " |";
    for (const Cell& cell : feature.cells) {
      all += " " + notes.mark(cell) + " |";
    }
    all += "\n";
  }
  return all;
}

std::string how_played(const Promise& promise) {
  if (!promise.not_played.empty()) {
    return " (not played by a test: " + std::string(promise.not_played) + ")";
  }
  return promise.elsewhere.empty() ? "" : " (played by `" + std::string(promise.elsewhere) + "`)";
}

/// Returns a sentence of a comment without its final punctuation.
std::string without_end(std::string_view quote) {
  return std::string(quote.substr(0, quote.find_last_not_of(".,;") + 1));
}

/// Returns each promise once, with the texts of all its errors.
std::string promises() {
  std::string all;
  std::string_view header;
  std::string_view quote;
  std::string item;
  const auto end_item = [&] {
    all += item.empty() ? "" : wrapped(item, "  ");
    item.clear();
  };
  for (const std::span<const Promise> list : {promises_of_sessions(), promises_of_cpp(), promises_of_libraries()}) {
    for (const Promise& promise : list) {
      if (promise.header != header) {
        end_item();
        header = promise.header;
        quote = {};
        all += "\n### `gradwire/" + std::string(header) + "`\n\n";
      }
      const std::string said = code(promise.text) + how_played(promise);
      if (promise.quote == quote) {
        item += ", " + said;
        continue;
      }
      end_item();
      quote = promise.quote;
      item = "- **" + std::string(promise.of) + "**: \"" + without_end(quote) + "\". It says " + said;
    }
  }
  end_item();
  return all;
}

}  // namespace

std::string document_of_features() {
  Notes notes;
  const std::string table = matrix(notes);
  return "# What works where\n\n" + wrapped(kIntroduction) + "\n" + wrapped(kColumnsOfTheMatrix) +
         "\n## The matrix\n\n" + table + "\n## Notes\n\n" + notes.text();
}

std::string document_of_errors() {
  return "# Errors that headers promise\n\n" + wrapped(kIntroduction) + "\n" + wrapped(kErrors) + promises();
}

}  // namespace gradwire::support
