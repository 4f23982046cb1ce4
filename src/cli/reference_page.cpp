// Writes docs/reference/tool.md from the tree of commands.
#include <algorithm>
#include <sstream>
#include <string>

#include "cli/command_tree.hpp"

namespace gradwire::cli {
namespace {

constexpr std::size_t kPageColumns = 140;

constexpr const char* kPageIntroduction = R"(# The tool

This page is written by a test from the command line of `gradwire`. To change it, change the help texts in `src/cli`, and
run `WRITE=1 build/release/bin/cli_test --gtest_filter='*ReferencePage*'`. The same text is in `gradwire --help`, in
`gradwire COMMAND --help` and in the man pages. `gradwire --version` prints the version.

A rate is written as `1Gbit/s` or `100MB/s`, a duration as `5ms` or `30us`, a size as `64MiB` (powers of 1024) or `1GB`
(powers of 1000), and a share as `10%`. INT and N are whole numbers. A list has commas between its values. CODEC is a codec
such as `int8` or `topk(1%)+int8` ([codecs](../explanation/numerics.md#codecs)). Commands also read [environment
variables](environment.md).

)";

/// The pages that say more about a command.
struct FurtherPage {
  std::string_view command;
  std::string_view link;
};
constexpr FurtherPage kFurtherPages[] = {
    {"check", "[policy files](policy.md)"},
    {"info", "[environment variables](environment.md), [doctor](../how-to/doctor.md#links)"},
    {"plan",
     "[gradwire plan](../how-to/plan.md), [your own gradients](../how-to/own-gradients.md#advice-for-its-sizes)"},
    {"ratio", "[your own gradients](../how-to/own-gradients.md)"},
    {"run",
     "[the drop-in for MPI](../how-to/drop-in-mpi.md), [launchers](../how-to/clusters.md), [a slow link on one "
     "host](../how-to/emulated-link.md)"},
    {"report", "[gradwire report](../how-to/report.md)"},
    {"doctor", "[gradwire doctor](../how-to/doctor.md)"},
    {"top", "[gradwire top](../how-to/top.md)"},
    {"key", "[security model](../explanation/security-model.md)"},
    {"trace", "[gradwire trace](../how-to/trace.md)"},
};

/// Returns the words of `text` in lines of at most kPageColumns; lines after the first begin with `indent`.
std::string in_lines(const std::string& text, const std::string& indent = "") {
  std::istringstream words(text);
  std::string all;
  std::string line;
  for (std::string word; words >> word;) {
    if (!line.empty() && line.size() + 1 + word.size() > kPageColumns) {
      all += line + "\n";
      line = indent + word;
    } else {
      line += (line.empty() ? "" : " ") + word;
    }
  }
  return all + line + "\n";
}

std::string in_backquotes(const std::string& text) { return "`" + text + "`"; }

void write_usage(const Command& root, const Command& command, std::ostream& out) {
  constexpr char kKept = '\x1f';  // a space at which no line may end
  std::string line = root.name + " " + command.path;
  for (const bool positional : {false, true}) {
    for (const CommandOption& option : command.options) {
      if (option.positional() != positional || option.names.back() == "--help") {
        continue;
      }
      std::string text = option.names.back() + (positional || option.value.empty() ? "" : kKept + option.value);
      text = (option.repeated ? "-- " : "") + text + (option.repeated ? "..." : "");
      line += " " + (option.required ? text : "[" + text + "]");
    }
  }
  line = in_lines(line, "  ");
  std::replace(line.begin(), line.end(), kKept, ' ');
  out << "```text\n" << line << "```\n\n";
}

void write_option_list(const Command& command, std::ostream& out) {
  for (const CommandOption& option : command.options) {
    if (option.names.back() == "--help") {
      continue;
    }
    std::string names;
    for (const std::string& name : option.names) {
      names += (names.empty() ? "" : ", ") +
               in_backquotes(name + (option.value.empty() || option.positional() ? "" : " " + option.value));
    }
    std::string fallback = option.fallback;
    if (fallback.starts_with('[') && fallback.ends_with(']')) {
      fallback = fallback.substr(1, fallback.size() - 2);
    }
    std::string choices = option.choices;
    for (std::size_t at = choices.find(' '); at != std::string::npos; at = choices.find(' ', at + 2)) {
      choices.replace(at, 1, ", ");
    }
    out << in_lines("- " + names + ": " + option.meaning + (choices.empty() ? "" : "; one of " + choices) +
                        (option.required ? "; must be given" : "") +
                        (fallback.empty() ? "" : "; default " + in_backquotes(fallback)),
                    "  ");
  }
}

void write_command_section(const Command& root, const Command& command, std::ostream& out) {
  const Meaning meaning = meaning_of(command);
  out << "\n## " << root.name << ' ' << command.path << "\n\n";
  std::string more;
  for (const FurtherPage& page : kFurtherPages) {
    more += command.path == page.command ? " More: " + std::string(page.link) + "." : "";
  }
  out << in_lines(meaning.sentence + "." + more);
  if (command.commands.empty()) {
    out << '\n';
    write_usage(root, command, out);
    write_option_list(command, out);
    if (meaning.example) {
      out << "\nExample: " << in_backquotes(*meaning.example) << '\n';
    }
  }
  for (const Command& child : command.commands) {
    write_command_section(root, child, out);
  }
}

}  // namespace

void write_reference_page(const Command& root, std::ostream& out) {
  out << kPageIntroduction << "| command | what it does |\n|---|---|\n";
  for (const Command& command : root.commands) {
    out << "| [" << command.name << "](#" << root.name << '-' << command.name << ") | " << meaning_of(command).sentence
        << " |\n";
  }
  out << "\n| exit status | meaning |\n|---|---|\n";
  for (const ExitStatus& status : exit_statuses()) {
    out << "| " << status.status << " | " << status.meaning << " |\n";
  }
  for (const Command& command : root.commands) {
    write_command_section(root, command, out);
  }
}

}  // namespace gradwire::cli
