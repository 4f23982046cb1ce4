// The command line as data: what man pages and completions are written from, so that they know what the tool knows.
#pragma once

#include <filesystem>
#include <ostream>
#include <string>
#include <string_view>
#include <vector>

namespace gradwire::cli {

struct CommandOption {
  std::vector<std::string> names;  // "--ranks", "-h"; of an argument without dashes its one name
  std::string value;               // "INT", "TEXT", "FILE", "CODEC"; empty: a flag
  std::string choices;             // all that may be given, with blanks between; empty: not a list
  std::string fallback;            // the default, if there is one to show
  std::string meaning;
  bool required = false;
  bool repeated = false;  // takes all that follows

  [[nodiscard]] bool positional() const { return names.front().front() != '-'; }
};

struct Command {
  std::string name;
  std::string path;  // "trace merge"; of the tool itself empty
  std::string meaning;
  std::vector<CommandOption> options;
  std::vector<Command> commands;
};

inline constexpr std::string_view kShells[] = {"bash", "fish", "zsh"};

/// The script that completes `root` in one of kShells. Error(invalid_argument) for any other.
void write_completion(const Command& root, std::string_view shell, std::ostream& out);
/// The man page of the tool, or of one of its commands.
void write_man_page(const Command& root, const Command& command, std::ostream& out);

/// All of them below `folder`, laid out as below a prefix's share/. Error(invalid_argument) where one cannot be
/// written.
void write_documents(const Command& root, const std::filesystem::path& folder);

}  // namespace gradwire::cli
