#include "cli/mca_files.hpp"

#include <algorithm>
#include <map>
#include <sstream>
#include <system_error>

#include "base/regular_file.hpp"
#include "cli/launch.hpp"
#include "cli/process.hpp"

namespace gradwire::cli {
namespace {

namespace fs = std::filesystem;

constexpr const char* kEnvironmentList = "mca_base_env_list";
constexpr const char* kListDelimiter = "mca_base_env_list_delimiter";

using Parameters = std::map<std::string, std::string>;
using Variable = std::function<std::string(const char*)>;

std::string without_blanks(const std::string& text) {
  const std::size_t first = text.find_first_not_of(" \t\r");
  return first == std::string::npos ? "" : text.substr(first, text.find_last_not_of(" \t\r") - first + 1);
}

std::vector<std::string> parts_of(const std::string& text, char separator) {
  std::vector<std::string> parts;
  std::istringstream stream(text);
  for (std::string part; std::getline(stream, part, separator);) {
    if (!part.empty()) {
      parts.push_back(part);
    }
  }
  return parts;
}

// Splits a line into words; quotes keep blanks together, and are removed.
std::vector<std::string> words_of_line(const std::string& line) {
  std::vector<std::string> words;
  bool inside = false;
  char quote = 0;
  for (const char c : line) {
    if (quote != 0 ? c == quote : c == '"' || c == '\'') {
      quote = quote != 0 ? '\0' : c;
      if (!inside) {
        words.emplace_back();
        inside = true;
      }
    } else if (quote == 0 && (c == ' ' || c == '\t' || c == '\r')) {
      inside = false;
    } else {
      if (!inside) {
        words.emplace_back();
        inside = true;
      }
      words.back() += c;
    }
  }
  return words;
}

// Reads "name = value"; a value that is known already stays.
void read_assignment(const std::string& line, Parameters& parameters) {
  const std::size_t equal = line.find('=');
  if (equal != std::string::npos) {
    parameters.emplace(without_blanks(line.substr(0, equal)), without_blanks(line.substr(equal + 1)));
  }
}

// Reads a file of --tune, which has words of a command line, or assignments.
void read_tune(const fs::path& file, Parameters& parameters, std::vector<std::string>& exports) {
  for (std::string line : lines_if_regular(file)) {
    line = without_blanks(line);
    if (line.empty() || line.front() == '#') {
      continue;
    }
    if (line.front() != '-') {
      read_assignment(line, parameters);
      continue;
    }
    const std::vector<std::string> words = words_of_line(line);
    for (std::size_t i = 0; i + 1 < words.size(); ++i) {
      if (is_export(words[i])) {
        exports.push_back(words[++i]);
      } else if (is_mca(words[i]) && i + 2 < words.size()) {
        parameters.emplace(words[i + 1], words[i + 2]);
        i += 2;
      }
    }
  }
}

void read_parameters(const fs::path& file, Parameters& parameters) {
  for (std::string line : lines_if_regular(file)) {
    line = without_blanks(line);
    if (!line.empty() && line.front() != '#') {
      read_assignment(line, parameters);
    }
  }
}

// The files that Open MPI reads by default. Distributions put the system's file into a folder of its own.
std::vector<std::string> usual_files(const std::string& mpirun, const Variable& variable) {
  std::vector<std::string> files{variable("HOME") + "/.openmpi/mca-params.conf"};
  std::error_code ignored;
  fs::path prefix = variable("OPAL_PREFIX");
  if (prefix.empty()) {
    if (const auto program = find_program(mpirun)) {
      prefix = fs::canonical(*program, ignored).parent_path().parent_path();
    }
  }
  for (const fs::path& folder : {prefix / "etc", prefix / "etc/openmpi", fs::path("/etc/openmpi")}) {
    if (folder != "/etc/openmpi" || prefix == "/usr") {
      files.push_back((folder / "openmpi-mca-params.conf").string());
    }
  }
  return files;
}

}  // namespace

McaFiles read_mca_files(const std::vector<std::string>& command, std::size_t launcher, const Variable& variable) {
  Parameters of_command;
  std::string tune;
  for (std::size_t i = launcher + 1; i + 1 < command.size(); ++i) {
    if (command[i] == "--tune" || command[i] == "-tune") {
      tune = command[i + 1];
    } else if (is_mca(command[i]) && i + 2 < command.size()) {
      of_command.emplace(command[i + 1], command[i + 2]);
    }
  }
  const auto told = [&](const std::string& name) {
    const auto found = of_command.find(name);
    return found != of_command.end() ? found->second : variable(("OMPI_MCA_" + name).c_str());
  };
  tune = tune.empty() ? told("mca_base_envar_file_prefix") : tune;
  McaFiles files;
  Parameters parameters;
  for (const std::string& file : parts_of(tune, ',')) {
    read_tune(file, parameters, files.exports);
  }
  std::string named = told("mca_base_param_files");
  named = named.empty() ? told("mca_param_files") : named;
  for (const std::string& file : named.empty() ? usual_files(command[launcher], variable) : parts_of(named, ',')) {
    read_parameters(file, parameters);
  }
  std::string delimiter = told(kListDelimiter);
  delimiter = delimiter.empty() ? parameters[kListDelimiter] : delimiter;
  files.delimiter = delimiter.empty() ? files.delimiter : delimiter.front();
  if (const std::string list = parameters[kEnvironmentList]; !list.empty()) {
    files.list = list;
  }
  return files;
}

}  // namespace gradwire::cli
