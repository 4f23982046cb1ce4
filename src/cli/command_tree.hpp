// The command line as data, from which man pages and completions are written, so that they agree with the tool.
#pragma once

#include <filesystem>
#include <optional>
#include <ostream>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace gradwire::cli {

struct CommandOption {
  std::vector<std::string> names;  // "--ranks", "-h"; an argument without dashes has one name
  std::string value;               // "INT", "TEXT", "FILE", "CODEC"; empty: a flag
  std::string choices;             // all allowed values, with blanks between; empty: not a list
  std::string fallback;            // the default, if there is one to show
  std::string meaning;
  bool required = false;
  bool repeated = false;  // takes all further arguments

  [[nodiscard]] bool positional() const { return names.front().front() != '-'; }
};

struct Command {
  std::string name;
  std::string path;  // "trace merge"; empty for the tool itself
  std::string meaning;
  std::vector<CommandOption> options;
  std::vector<Command> commands;
};

/// "Predict step time: gradwire plan --layers m.toml" is a sentence and an example.
struct Meaning {
  std::string sentence;
  std::optional<std::string> example;
};
[[nodiscard]] Meaning meaning_of(const Command& command);

/// An exit status of the tool; commands stand between backquotes in `meaning`.
struct ExitStatus {
  int status = 0;
  std::string_view meaning;
};
[[nodiscard]] std::span<const ExitStatus> exit_statuses() noexcept;

inline constexpr std::string_view kShells[] = {"bash", "fish", "zsh"};

/// Writes the script that completes `root` in one of kShells. Error(invalid_argument) for any other shell.
void write_completion(const Command& root, std::string_view shell, std::ostream& out);
/// Writes the man page of the tool, or of one of its commands.
void write_man_page(const Command& root, const Command& command, std::ostream& out);
/// Writes docs/reference/tool.md.
void write_reference_page(const Command& root, std::ostream& out);

/// Writes all of them below `folder`, man pages and completions with the layout of a prefix's share/.
/// Error(invalid_argument) where one cannot be written.
void write_documents(const Command& root, const std::filesystem::path& folder);

}  // namespace gradwire::cli
