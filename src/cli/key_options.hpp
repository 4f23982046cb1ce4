// The options of gradwire key, and of the commands behind it.
#pragma once

#include <CLI/CLI.hpp>
#include <ostream>
#include <string>

#include "cli/commands.hpp"

namespace gradwire::cli {

/// gradwire key, its commands, and what they were given. It must outlive the command line that it was added to.
class KeyCommands {
 public:
  explicit KeyCommands(CLI::App& app);
  [[nodiscard]] const CLI::App& key() const noexcept { return *key_; }
  /// Runs the command that was given.
  int run(std::ostream& out) const;

 private:
  CLI::App* key_;
  CLI::App* new_;
  CLI::App* derive_;
  CLI::App* check_;
  std::string file_;
  KeyDeriveOptions options_;
};

}  // namespace gradwire::cli
