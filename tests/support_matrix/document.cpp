// Writes docs/reference/support.md and support-errors.md from the rows of the matrix.
#include <algorithm>
#include <cstddef>
#include <sstream>
#include <utility>
#include <vector>

#include "tests/support_matrix/matrix.hpp"

namespace gradwire::support {
namespace {

constexpr std::size_t kColumns = 140;

constexpr const char* kIntroduction = R"(
A test writes this page from the table in [`tests/support_matrix`](../../tests/support_matrix), and plays each yes and each no.)";

constexpr const char* kColumnsOfTheMatrix = R"(
*host*: host memory over a `Transport`, such as MPI. *Processes*: over `gradwire::Processes`, which some ranks may leave
([elastic](../explanation/elastic.md)). *GPU*: device memory over a `Transport` or `Processes`
([`gradwire/cuda.hpp`](../how-to/gpu.md)). *NCCL*: device memory over NCCL. *C*: the [C API](c-abi.md), over MPI. *no call*:
the headers lack it. Numbers lead to notes. The test plays columns of device memory on a simulated device, without CUDA and NCCL
([what ran on a GPU](../how-to/gpu.md#what-has-been-tried)).)";

constexpr const char* kErrors = R"(
This page lists a part of what each `Error(invalid_argument)` and `Error(unsupported)` says, by the function that promises the error in
a public header; the comment there says when it is thrown. A test writes the page from the table in
[`tests/support_matrix`](../../tests/support_matrix) and causes each error. It fails if a header promises one that the table lacks.)";

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

std::string not_played(std::string_view why) {
  return why.empty() ? "" : " (not played by a test: " + std::string(why) + ")";
}

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
    return code_of(cell.code) + ": " + code(cell.text) + not_played(cell.not_played);
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

/// Returns the table, after lists of the features that all places have and of those that none has.
std::string matrix(Notes& notes) {
  std::string everywhere;
  std::string nowhere;
  std::string rows;
  std::string_view group;
  for (const Feature& feature : features()) {
    std::vector<std::string> marks;
    for (const Cell& cell : feature.cells) {
      marks.push_back(notes.mark(cell));
    }
    const std::string name(feature.name);
    if (std::ranges::count(marks, marks.front()) == static_cast<std::ptrdiff_t>(kPlaces)) {
      if (feature.cells.front().kind == Cell::Kind::works) {
        everywhere += "- " + name + "\n";
      } else {
        nowhere += "- " + name + ": " + marks.front() + "\n";
      }
      continue;
    }
    if (feature.group != group) {
      group = feature.group;
      rows += "| **" + std::string(group) + "** | | | | | | |\n";
    }
    rows += "| " + name + " |";
    for (const std::string& mark : marks) {
      rows += " " + mark + " |";
    }
    rows += "\n";
  }
  std::string head = "| feature |";
  std::string rule = "|---|";
  for (std::size_t place = 0; place < kPlaces; ++place) {
    head += " " + std::string(to_string(static_cast<Place>(place))) + " |";
    rule += "---|";
  }
  return "Sessions in every column have:\n\n" + everywhere + "\nSessions in no column have:\n\n" + nowhere + "\n" +
         head + "\n" + rule + "\n" + rows;
}

/// Returns the texts of all errors, by header, function and code.
std::string promises() {
  std::string all;
  std::string_view header;
  std::vector<std::pair<std::string, std::string>> items;  // function and code, with the texts
  const auto end_header = [&] {
    for (const auto& [place, texts] : items) {
      all += wrapped("- " + place + ": " + texts, "  ");
    }
    items.clear();
  };
  for (const std::span<const Promise> list : {promises_of_sessions(), promises_of_cpp(), promises_of_libraries()}) {
    for (const Promise& promise : list) {
      if (promise.header != header) {
        end_header();
        header = promise.header;
        all += "\n### `gradwire/" + std::string(header) + "`\n\n";
      }
      const std::string place = "**" + std::string(promise.of) + "**, " + std::string(to_string(promise.code));
      const auto item = std::ranges::find(items, place, &std::pair<std::string, std::string>::first);
      const std::string text = code(promise.text) + not_played(promise.not_played);
      if (item == items.end()) {
        items.emplace_back(place, text);
      } else if (item->second.find(code(promise.text)) == std::string::npos) {
        item->second += ", " + text;
      }
    }
  }
  end_header();
  return all;
}

}  // namespace

std::string document_of_features() {
  Notes notes;
  const std::string table = matrix(notes);
  return "# What works where\n\n" + wrapped(kIntroduction) + "\n" + wrapped(kColumnsOfTheMatrix) +
         "\n## The matrix\n\n" + table + "\n## Notes\n\n" + notes.text();
}

std::string document_of_errors() { return "# Errors that headers promise\n\n" + wrapped(kErrors) + promises(); }

}  // namespace gradwire::support
