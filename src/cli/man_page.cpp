// Writes man pages from the tree of commands, with the macros of man(7).
#include <algorithm>
#include <optional>
#include <system_error>

#include "base/durable_file.hpp"
#include "base/environment.hpp"
#include "base/own_files.hpp"
#include "cli/command_tree.hpp"
#include "cli/commands.hpp"
#include "gradwire/error.hpp"
#include "gradwire/version.hpp"

namespace gradwire::cli {
namespace {

/// The text as a line of its own, without macros and escapes, and with dashes that can be copied.
std::string roff(std::string_view text) {
  std::string out = text.starts_with('.') || text.starts_with('\'') ? "\\&" : "";
  for (const char c : text) {
    out += c == '\\' ? std::string("\\e") : c == '-' ? std::string("\\-") : std::string(1, c);
  }
  return out;
}

std::string bold(std::string_view text) { return "\\fB" + roff(text) + "\\fR"; }
std::string italic(std::string_view text) { return "\\fI" + roff(text) + "\\fR"; }

/// The text with the words between backquotes in bold.
std::string marked(std::string_view text) {
  std::string out;
  for (bool code = false; !text.empty(); code = !code) {
    const std::size_t end = std::min(text.find('`'), text.size());
    out += code ? bold(text.substr(0, end)) : roff(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return out;
}

std::string page_name(const Command& root, const Command& command) {
  std::string name = root.name + (command.path.empty() ? "" : "-" + command.path);
  std::replace(name.begin(), name.end(), ' ', '-');
  return name;
}

void write_synopsis(const Command& root, const Command& command, std::ostream& out) {
  out << ".SH SYNOPSIS\n.nh\n" << bold(root.name);
  if (&root == &command) {
    out << " [" << bold("--help") << "] [" << bold("--version") << "] " << italic("COMMAND") << " ...\n.hy\n";
    return;
  }
  out << ' ' << bold(command.path);
  if (!command.commands.empty()) {
    out << " [" << bold("--help") << "] " << italic("COMMAND") << " ...\n.hy\n";
    return;
  }
  for (const CommandOption& option : command.options) {
    if (!option.positional()) {
      const std::string text = bold(option.names.back()) + (option.value.empty() ? "" : " " + italic(option.value));
      out << (option.required ? " " + text : " [" + text + "]");
    }
  }
  for (const CommandOption& option : command.options) {
    if (option.positional()) {
      const std::string text =
          (option.repeated ? bold("--") + " " : "") + italic(option.names.front()) + (option.repeated ? " ..." : "");
      out << (option.required ? " " + text : " [" + text + "]");
    }
  }
  out << "\n.hy\n";
}

void write_options(const Command& command, std::ostream& out) {
  out << ".SH OPTIONS\n";
  for (const CommandOption& option : command.options) {
    out << ".TP\n";
    for (std::size_t i = 0; i < option.names.size(); ++i) {
      out << (i == 0 ? "" : ", ") << (option.positional() ? italic(option.names[i]) : bold(option.names[i]));
    }
    out << (option.value.empty() || option.positional() ? "" : " " + italic(option.value)) << '\n'
        << roff(option.meaning) << (option.required ? " (must be given)" : "")
        << (option.fallback.empty() ? "" : " (default: " + roff(option.fallback) + ")") << '\n';
  }
}

void write_commands(const Command& root, const Command& parent, std::ostream& out) {
  out << ".SH COMMANDS\n";
  for (const Command& command : parent.commands) {
    out << ".TP\n"
        << bold(command.name) << '\n'
        << roff(meaning_of(command).sentence) << ".\nSee\n.BR " << roff(page_name(root, command)) << " (1).\n";
  }
}

void write_ends(std::ostream& out) {
  out << ".SH ENVIRONMENT\n";
  for (const EnvironmentVariable& variable : environment_variables()) {
    out << ".TP\n"
        << bold(variable.name) << '\n'
        << roff(variable.meaning) << " (values: " << roff(variable.values)
        << "; default: " << roff(variable.default_value) << ")\n";
  }
  out << ".SH EXIT STATUS\n";
  for (const ExitStatus& status : exit_statuses()) {
    out << ".TP\n" << status.status << '\n' << marked(status.meaning) << '\n';
  }
}

}  // namespace

Meaning meaning_of(const Command& command) {
  const std::size_t colon = command.meaning.find(": ");
  if (colon == std::string::npos) {
    return {command.meaning, std::nullopt};
  }
  return {command.meaning.substr(0, colon), command.meaning.substr(colon + 2)};
}

std::span<const ExitStatus> exit_statuses() noexcept {
  static constexpr ExitStatus kStatuses[] = {
      {0, "Done."},
      {1, "`doctor` found a problem."},
      {kUsageStatus,
       "Refused: a wrong argument, policy file, model file or environment. The message says which and what to do."},
      {kCannotRunStatus, "`run` and `doctor` cannot start the command. Otherwise their status is that of the command."},
  };
  return kStatuses;
}

void write_man_page(const Command& root, const Command& command, std::ostream& out) {
  const std::string name = page_name(root, command);
  const Meaning meaning = meaning_of(command);
  std::string title = name;
  for (char& c : title) {
    c = static_cast<char>(c >= 'a' && c <= 'z' ? c - 'a' + 'A' : c);
  }
  out << ".\\\" Made from the tool's command line.\n.TH " << title << " 1 \"\" \"gradwire " << kVersion
      << "\" \"gradwire\"\n.SH NAME\n"
      << roff(name) << " \\- " << roff(meaning.sentence) << '\n';
  write_synopsis(root, command, out);
  out << ".SH DESCRIPTION\n" << roff(meaning.sentence) << ".\n";
  if (!command.commands.empty()) {
    write_commands(root, command, out);
  }
  write_options(command, out);
  if (meaning.example) {
    out << ".SH EXAMPLE\n.nf\n" << roff(*meaning.example) << "\n.fi\n";
  }
  write_ends(out);
  out << ".SH SEE ALSO\n";
  if (&root != &command) {
    out << ".BR " << roff(root.name) << " (1),\n";
  }
  out << "the documents of gradwire in \\fIshare/doc/gradwire\\fR of its prefix\n";
}

void write_documents(const Command& root, const std::filesystem::path& folder) {
  const auto write = [&folder](const std::filesystem::path& name, const auto& text) {
    const std::filesystem::path file = folder / name;
    std::error_code ignored;  // writing reports the error
    make_own_folders(file.parent_path(), ignored);
    write_report_file(file, text, Readers::everybody);
  };
  const std::filesystem::path manual = "man/man1";
  write(manual / (root.name + ".1"), [&](std::ostream& out) { write_man_page(root, root, out); });
  for (const Command& command : root.commands) {
    write(manual / (page_name(root, command) + ".1"), [&](std::ostream& out) { write_man_page(root, command, out); });
    for (const Command& child : command.commands) {
      write(manual / (page_name(root, child) + ".1"), [&](std::ostream& out) { write_man_page(root, child, out); });
    }
  }
  write("tool.md", [&](std::ostream& out) { write_reference_page(root, out); });
  write("bash-completion/completions/gradwire", [&](std::ostream& out) { write_completion(root, "bash", out); });
  write("fish/vendor_completions.d/gradwire.fish", [&](std::ostream& out) { write_completion(root, "fish", out); });
  write("zsh/site-functions/_gradwire", [&](std::ostream& out) { write_completion(root, "zsh", out); });
}

}  // namespace gradwire::cli
