// Completion scripts for bash, fish and zsh. Each is one text per shell with the names of the tree filled in.
#include <algorithm>

#include "cli/command_tree.hpp"
#include "codec/registry.hpp"
#include "gradwire/error.hpp"

namespace gradwire::cli {
namespace {

/// The text in single quotes, as all three shells read it.
std::string in_quotes(std::string_view text, bool fish = false) {
  std::string out = "'";
  for (const char c : text) {
    if (c == '\'') {
      out += fish ? "\\'" : "'\\''";
    } else if (c == '\\' && fish) {
      out += "\\\\";
    } else {
      out += c;
    }
  }
  return out + "'";
}

std::string joined(const std::vector<std::string>& words) {
  std::string out;
  for (const std::string& word : words) {
    out += (out.empty() ? "" : " ") + word;
  }
  return out;
}

std::vector<std::string> option_names(const Command& command) {
  std::vector<std::string> names;
  for (const CommandOption& option : command.options) {
    if (!option.positional()) {
      names.insert(names.end(), option.names.begin(), option.names.end());
    }
  }
  return names;
}

std::vector<std::string> command_names(const Command& root) {
  std::vector<std::string> names;
  for (const Command& command : root.commands) {
    names.push_back(command.name);
  }
  return names;
}

/// The words that may stand for a value; none for a FILE or DIRECTORY, which the shell completes itself.
std::string words_of(const CommandOption& option) {
  std::string words = option.choices;
  if (option.value == "CODEC") {
    words = "auto";
    for (const codec::CodecEntry& codec : codec::codecs()) {
      words += " " + std::string(codec.name);
    }
  }
  return words;
}

std::string bash_reply(const CommandOption& option) {
  if (option.value == "FILE" || option.value == "DIRECTORY") {
    return std::string(option.value == "FILE" ? "_gradwire_files" : "_gradwire_directories") + " \"$current\"";
  }
  if (option.repeated) {
    return "mapfile -t COMPREPLY < <(compgen -c -- \"$current\")";
  }
  const std::string words = words_of(option);
  return words.empty() ? ":" : "mapfile -t COMPREPLY < <(compgen -W " + in_quotes(words) + " -- \"$current\")";
}

std::vector<std::string> all_words(const Command& command) {
  std::vector<std::string> words = command_names(command);
  for (const std::string& name : option_names(command)) {
    words.push_back(name);
  }
  return words;
}

std::string bash_words(const std::vector<std::string>& words) {
  return "mapfile -t COMPREPLY < <(compgen -W " + in_quotes(joined(words)) + " -- \"$current\")";
}

void write_bash_command(const Command& command, std::ostream& out) {
  if (!command.commands.empty()) {
    out << "    " << in_quotes(command.path) << ") " << bash_words(all_words(command)) << " ;;\n";
    for (const Command& child : command.commands) {
      write_bash_command(child, out);
    }
    return;
  }
  out << "    " << in_quotes(command.path) << ")\n      case $previous in\n";
  std::string argument = ":";
  for (const CommandOption& option : command.options) {
    if (option.positional()) {
      argument = bash_reply(option);
    } else if (!option.value.empty()) {
      std::string pattern = joined(option.names);
      std::replace(pattern.begin(), pattern.end(), ' ', '|');
      out << "        " << pattern << ")\n          " << bash_reply(option) << "\n          return\n          ;;\n";
    }
  }
  out << "      esac\n      if [[ $current = -* ]]; then\n        " << bash_words(option_names(command))
      << "\n      else\n        " << argument << "\n      fi\n      ;;\n";
}

void write_bash(const Command& root, std::ostream& out) {
  out << R"sh(# bash completion of gradwire, made by `gradwire completion bash`
_gradwire_files() {
  compopt -o filenames 2>/dev/null
  mapfile -t COMPREPLY < <(compgen -f -- "$1")
}
_gradwire_directories() {
  compopt -o filenames 2>/dev/null
  mapfile -t COMPREPLY < <(compgen -d -- "$1")
}

_gradwire() {
  local current=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD - 1]} command='' i
  COMPREPLY=()
  for ((i = 1; i < COMP_CWORD; i++)); do
    if [ "${COMP_WORDS[i]}" = -- ]; then # the job's own command line
      if declare -F _command_offset >/dev/null; then
        _command_offset $((i + 1))
      elif [ $((i + 1)) -eq "$COMP_CWORD" ]; then
        mapfile -t COMPREPLY < <(compgen -c -- "$current")
      else
        _gradwire_files "$current"
      fi
      return
    fi
    if [[ ${COMP_WORDS[i]} != -* ]]; then
      case $command in # those that have commands of their own
        )sh";
  std::string parents = "''";
  for (const Command& command : root.commands) {
    parents += command.commands.empty() ? "" : " | " + command.name;
  }
  out << parents << R"sh() command=${command:+$command }${COMP_WORDS[i]} ;;
      esac
    fi
  done
  case $command in
)sh";
  out << "    '') " << bash_words(all_words(root)) << " ;;\n";
  for (const Command& command : root.commands) {
    write_bash_command(command, out);
  }
  out << "  esac\n}\ncomplete -F _gradwire gradwire\n";
}

/// Writes one line of fish for an option or an argument of a command; `scope` says where it holds.
void write_fish_option(const CommandOption& option, const std::string& scope, std::ostream& out) {
  const std::string words = words_of(option);
  const bool path = option.value == "FILE" || option.value == "DIRECTORY";
  if (option.positional() && words.empty() && !path && !option.repeated) {
    return;
  }
  out << "complete -c gradwire -n " << scope;
  if (!option.positional()) {
    for (const std::string& name : option.names) {
      out << (name.starts_with("--") ? " -l " + name.substr(2) : " -s " + name.substr(1));
    }
    out << (option.value.empty() ? "" : " -r");
  }
  if (option.value == "FILE") {
    out << " -F";
  } else if (option.value == "DIRECTORY") {
    out << " -a '(__fish_complete_directories)'";
  } else if (option.repeated) {
    out << " -a '(__fish_complete_subcommand)'";
  } else if (!words.empty()) {
    out << " -a " << in_quotes(words, true);
  }
  out << (option.positional() ? "" : " -d " + in_quotes(option.meaning, true)) << '\n';
}

void write_fish_command(const Command& command, const std::string& scope, std::ostream& out) {
  for (const CommandOption& option : command.options) {
    write_fish_option(option, "'" + scope + "'", out);
  }
  for (const Command& child : command.commands) {
    out << "complete -c gradwire -n '" << scope << "; and not __fish_seen_subcommand_from "
        << joined(command_names(command)) << "' -a " << child.name << " -d " << in_quotes(child.meaning, true) << '\n';
    write_fish_command(child, scope + "; and __fish_seen_subcommand_from " + child.name, out);
  }
}

void write_fish(const Command& root, std::ostream& out) {
  out << "# fish completion of gradwire, made by `gradwire completion fish`\ncomplete -c gradwire -f\n";
  for (const CommandOption& option : root.options) {
    write_fish_option(option, "__fish_use_subcommand", out);
  }
  for (const Command& command : root.commands) {
    out << "complete -c gradwire -n __fish_use_subcommand -a " << command.name << " -d "
        << in_quotes(command.meaning, true) << '\n';
    write_fish_command(command, "__fish_seen_subcommand_from " + command.name, out);
  }
}

std::string zsh_action(const CommandOption& option) {
  if (option.value == "FILE") {
    return "_files";
  }
  if (option.value == "DIRECTORY") {
    return "_files -/";
  }
  const std::string words = words_of(option);
  return words.empty() ? " " : "(" + words + ")";
}

/// The meaning as _arguments takes it between brackets.
std::string zsh_meaning(const std::string& meaning) {
  std::string out;
  for (const char c : meaning) {
    out += c == '[' || c == ']' || c == ':' || c == '\\' ? std::string("\\") + c : std::string(1, c);
  }
  return out;
}

void write_zsh_option(const CommandOption& option, std::ostream& out) {
  if (option.repeated) {
    out << " \\\n        " << in_quotes("*:::" + option.names.front() + ":_normal");
  } else if (option.positional()) {
    out << " \\\n        " << in_quotes(":" + option.names.front() + ":" + zsh_action(option));
  } else {
    for (const std::string& name : option.names) {
      const std::string value = option.value.empty() ? "" : ":" + option.value + ":" + zsh_action(option);
      out << " \\\n        " << in_quotes(name + "[" + zsh_meaning(option.meaning) + "]" + value);
    }
  }
}

void write_zsh_command(const Command& command, const std::string& margin, std::ostream& out) {
  out << margin << command.name << ")\n" << margin << "  _arguments" << (command.commands.empty() ? "" : " -C");
  for (const CommandOption& option : command.options) {
    write_zsh_option(option, out);
  }
  if (!command.commands.empty()) {
    out << " \\\n        " << in_quotes("1:command:(" + joined(command_names(command)) + ")")
        << " '*::argument:->deeper'\n"
        << margin << "  if [ \"$state\" = deeper ]; then\n"
        << margin << "    case $line[1] in\n";
    for (const Command& child : command.commands) {
      write_zsh_command(child, margin + "      ", out);
    }
    out << margin << "    esac\n" << margin << "  fi";
  }
  out << '\n' << margin << "  ;;\n";
}

void write_zsh(const Command& root, std::ostream& out) {
  out << "#compdef gradwire\n# zsh completion of gradwire, made by `gradwire completion zsh`\n_gradwire() {\n"
         "  local context state state_descr line\n  typeset -A opt_args\n  _arguments -C";
  for (const CommandOption& option : root.options) {
    write_zsh_option(option, out);
  }
  out << " \\\n        '1:command:->command' '*::argument:->argument'\n  case $state in\n    command)\n"
         "      local -a commands=(\n";
  for (const Command& command : root.commands) {
    out << "        " << in_quotes(command.name + ":" + zsh_meaning(command.meaning)) << '\n';
  }
  out << "      )\n      _describe command commands\n      ;;\n    argument)\n      case $line[1] in\n";
  for (const Command& command : root.commands) {
    write_zsh_command(command, "      ", out);
  }
  out << "      esac\n      ;;\n  esac\n}\n"
         "if [ \"$funcstack[1]\" = _gradwire ]; then\n  _gradwire \"$@\"\nelse\n  compdef _gradwire gradwire\nfi\n";
}

}  // namespace

void write_completion(const Command& root, std::string_view shell, std::ostream& out) {
  if (shell == "bash") {
    write_bash(root, out);
  } else if (shell == "fish") {
    write_fish(root, out);
  } else if (shell == "zsh") {
    write_zsh(root, out);
  } else {
    throw Error(ErrorCode::invalid_argument,
                "completion: there is none for the shell \"" + std::string(shell) + "\": write bash, fish or zsh");
  }
}

}  // namespace gradwire::cli
