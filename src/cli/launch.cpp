#include "cli/launch.hpp"

#include <algorithm>
#include <array>

#include "base/mpi_libraries.hpp"
#include "cli/elf.hpp"
#include "gradwire/error.hpp"

namespace gradwire::cli {
namespace {

constexpr std::string_view kOpenMpiList = "mca_base_env_list";

// Whether the argument is an option of hydra whose value is a program.
bool names_launcher(std::string_view argument) {
  constexpr std::array kKnown{"launcher", "launcher-exec", "bootstrap", "bootstrap-exec"};
  const std::size_t name = argument.find_first_not_of('-');
  return name != 0 && name <= 2 && std::find(kKnown.begin(), kKnown.end(), argument.substr(name)) != kKnown.end();
}

// Whether the program has one of these names, also with an ending as in "mpirun.openmpi", but not "mpirun.conf".
bool is_named(const std::string& program, std::initializer_list<std::string_view> names) {
  const std::string name = std::filesystem::path(program).filename().string();
  return std::any_of(names.begin(), names.end(), [&](std::string_view known) {
    return name == known || (name.starts_with(known) && name[known.size()] == '.' && find_program(program));
  });
}

// Whether the words after this one are its own arguments: those of a script, an interpreter or an MPI program.
bool keeps_arguments(const std::string& word) {
  const auto program = find_program(word);
  return program && (is_interpreter(word) || is_script(*program) || linked_with(*program));
}

std::optional<std::size_t> find_named(const std::vector<std::string>& command,
                                      std::initializer_list<std::string_view> names) {
  const auto found = std::find_if(command.begin(), command.end(),
                                  [&](const std::string& argument) { return is_named(argument, names); });
  return found == command.end() ? std::nullopt : std::optional<std::size_t>(found - command.begin());
}

[[noreturn]] void refuse_own(std::string_view name) {
  throw Error(ErrorCode::invalid_argument, "the command sets " + std::string(name) +
                                               " for its ranks, as gradwire run does; set it in the environment " +
                                               "of gradwire run instead (LD_PRELOAD is added to)");
}

// "NAME" or "NAME=VALUE"
void check_own(std::string_view assignment, const Environment& ranks) {
  const std::string_view name = assignment.substr(0, assignment.find('='));
  for (const auto& [ours, value] : ranks) {
    if (ours == name) {
      refuse_own(name);
    }
  }
}

void check_own_list(std::string_view list, char delimiter, const Environment& ranks) {
  while (!list.empty()) {
    const std::string_view entry = list.substr(0, list.find(delimiter));
    list.remove_prefix(std::min(list.size(), entry.size() + 1));
    check_own(entry, ranks);
  }
}

std::string as_list(std::string list, char delimiter, const Environment& ranks) {
  for (const auto& [name, value] : ranks) {
    list += (list.empty() ? "" : std::string(1, delimiter)) + name + "=" + value;
  }
  return list;
}

void insert_exports(std::vector<std::string>& command, std::size_t launcher, const Environment& ranks) {
  std::vector<std::string> exports;
  for (const auto& [name, value] : ranks) {
    exports.insert(exports.end(), {"-x", name + "=" + value});
  }
  // Each of the programs that ":" separates has arguments of its own.
  for (std::size_t i = command.size(); i-- > launcher;) {
    if (i == launcher || command[i] == ":") {
      command.insert(command.begin() + static_cast<std::ptrdiff_t>(i) + 1, exports.begin(), exports.end());
    }
  }
}

Launch launch_open_mpi(const std::vector<std::string>& command, std::size_t launcher, const Environment& ranks,
                       const std::string& inherited_list, const McaFiles& files) {
  Launch launch{command, {}};
  bool exports = is_named(command[launcher], {"prterun"}) || !files.exports.empty();  // prterun does not know the list
  for (const std::string& assignment : files.exports) {
    check_own(assignment, ranks);
  }
  std::optional<std::size_t> list;  // index of the list's value
  for (std::size_t i = launcher + 1; i + 1 < command.size(); ++i) {
    if (is_export(command[i])) {
      check_own(command[i + 1], ranks);
      exports = true;
    } else if (is_mca(command[i]) && command[i + 1] == kOpenMpiList && i + 2 < command.size()) {
      list = i + 2;
    }
  }
  // The list that Open MPI would read without us. A list of ours in the environment would replace one in a file.
  const std::string before = list ? command[*list] : !inherited_list.empty() ? inherited_list : files.list.value_or("");
  check_own_list(before, files.delimiter, ranks);
  const bool listable = std::all_of(ranks.begin(), ranks.end(), [&](const auto& variable) {
    return variable.second.find(files.delimiter) == std::string::npos;
  });
  if (!listable && !before.empty()) {
    throw Error(ErrorCode::invalid_argument, std::string("a value with \"") + files.delimiter + "\" cannot stand in " +
                                                 std::string(kOpenMpiList) +
                                                 "; use -x for your own variables, or a path without one");
  }
  if (exports || !listable) {
    insert_exports(launch.command, launcher, ranks);
  } else if (list) {
    launch.command[*list] = as_list(before, files.delimiter, ranks);
  } else {
    launch.environment.emplace_back("OMPI_MCA_" + std::string(kOpenMpiList), as_list(before, files.delimiter, ranks));
  }
  return launch;
}

Launch launch_mpich(const std::vector<std::string>& command, std::size_t launcher, const Environment& ranks) {
  for (std::size_t i = launcher + 1; i + 1 < command.size(); ++i) {
    if (command[i] == "-genv" || command[i] == "-env") {
      check_own(command[i + 1], ranks);
    }
  }
  Launch launch{command, {}};
  auto at = launch.command.begin() + static_cast<std::ptrdiff_t>(launcher) + 1;
  for (const auto& [name, value] : ranks) {
    at = launch.command.insert(at, {"-genv", name, value}) + 3;
  }
  return launch;
}

// Whether the argument is an option of srun with one letter and a value.
bool takes_a_value(std::string_view option) {
  constexpr std::string_view kLetters = "AaBbcCdDeEFGiIJLmMNnopqrRSTtwWx";
  return option.size() == 2 && option[0] == '-' && kLetters.find(option[1]) != std::string_view::npos;
}

// Where srun's own arguments end: a job or a partition may have the name of a program, as "test".
std::size_t find_end_of_srun(const std::vector<std::string>& command, std::size_t begin) {
  for (std::size_t i = begin; i < command.size(); ++i) {
    if (takes_a_value(command[i])) {
      ++i;
    } else if (!command[i].starts_with("-") && find_program(command[i])) {
      return i;
    }
  }
  return command.size();
}

// A list of srun's --export with the names of the variables that ranks need; their values come from srun's environment.
std::string with_names(std::string_view list, const Environment& ranks) {
  std::string names;
  bool all = false;
  for (std::string_view rest = list; !rest.empty();) {
    const std::string_view entry = rest.substr(0, rest.find(','));
    rest.remove_prefix(std::min(rest.size(), entry.size() + 1));
    check_own(entry, ranks);
    all |= entry == "ALL";
    if (entry != "NONE" && entry != "NIL") {
      names += (names.empty() ? "" : ",") + std::string(entry);
    }
  }
  for (const auto& [name, value] : ranks) {
    names += all ? "" : (names.empty() ? "" : ",") + name;
  }
  return names;
}

}  // namespace

bool is_mca(std::string_view argument) {
  return argument == "--mca" || argument == "-mca" || argument == "--gmca" || argument == "-gmca";
}

bool is_export(std::string_view argument) { return argument == "-x" || argument == "--x"; }

bool is_interpreter(const std::string& program) {
  const std::string name = std::filesystem::path(program).filename().string();
  constexpr std::array kKnown{"sh",   "bash",   "dash",    "ksh",  "zsh",    "csh",   "tcsh",
                              "fish", "python", "pypy",    "perl", "lua",    "ruby",  "node",
                              "java", "julia",  "Rscript", "R",    "octave", "tclsh", "make"};
  const std::string stem = name.substr(0, name.find_last_not_of("0123456789.-") + 1);
  return std::find(kKnown.begin(), kKnown.end(), stem) != kKnown.end();
}

std::optional<std::size_t> find_launcher(const std::vector<std::string>& command) {
  for (std::size_t i = 0; i < command.size(); ++i) {
    if (is_named(command[i], {"mpirun", "mpiexec", "orterun", "orte-run", "prterun", "mpdrun"})) {
      return i;
    }
    if (keeps_arguments(command[i])) {
      break;
    }
  }
  return std::nullopt;
}

bool repeats_itself(const std::vector<std::string>& command) {
  for (std::size_t i = 0; i + 1 < command.size(); ++i) {
    if (is_named(command[i], {"gradwire"}) && command[i + 1] == "run") {
      return true;
    }
    if (keeps_arguments(command[i]) && !find_launcher({command[i]})) {
      break;
    }
  }
  return false;
}

bool only_submits(const std::vector<std::string>& command) {
  return is_named(command.front(), {"sbatch", "qsub", "bsub"});
}

bool starts_by_slurm(const std::vector<std::string>& command) { return find_named(command, {"srun"}).has_value(); }

Launch inherit(const std::vector<std::string>& command, const Environment& ranks, const std::string& slurm_list) {
  Launch launch{command, ranks};
  if (!slurm_list.empty()) {
    launch.environment.emplace_back("SLURM_EXPORT_ENV", with_names(slurm_list, ranks));
  }
  const auto srun = find_named(command, {"srun"});
  const std::size_t job = srun ? find_end_of_srun(command, *srun + 1) : 0;
  for (std::size_t i = srun.value_or(0) + 1; i < job; ++i) {
    constexpr std::string_view kOption = "--export";
    std::string& argument = launch.command[i];
    if (argument.starts_with(std::string(kOption) + "=")) {
      argument = std::string(kOption) + "=" + with_names(std::string_view(argument).substr(kOption.size() + 1), ranks);
    } else if (argument == kOption && i + 1 < job) {
      launch.command[i + 1] = with_names(launch.command[i + 1], ranks);
    }
  }
  return launch;
}

std::optional<Library> identify(std::string_view version) {
  const auto has = [&](std::string_view text) { return version.find(text) != std::string_view::npos; };
  if (has("Open MPI") || has("OpenRTE") || has("PRRTE")) {
    return Library::open_mpi;
  }
  if (has("HYDRA") || has("MPICH") || has("Intel(R) MPI")) {
    return Library::mpich;
  }
  return std::nullopt;
}

Launch make_launch(const std::vector<std::string>& command, std::size_t launcher, Library library,
                   const Environment& ranks, const std::string& inherited_list, const McaFiles& files) {
  return library == Library::open_mpi ? launch_open_mpi(command, launcher, ranks, inherited_list, files)
                                      : launch_mpich(command, launcher, ranks);
}

std::optional<std::size_t> find_job_index(const std::vector<std::string>& command, std::size_t begin) {
  for (std::size_t i = begin; i < command.size(); ++i) {
    if (is_mca(command[i]) || command[i] == "-genv" || command[i] == "-env") {
      i += 2;
    } else if (names_launcher(command[i])) {
      ++i;
    } else if (find_program(command[i])) {
      return i;
    }
  }
  return std::nullopt;
}

std::optional<std::filesystem::path> find_job(const std::vector<std::string>& command, std::size_t begin) {
  const auto index = find_job_index(command, begin);
  return index ? find_program(command[*index]) : std::nullopt;
}

std::optional<Library> linked_with(const std::filesystem::path& program) {
  const std::vector<std::string> needed = needed_libraries(program);
  const auto needs = [&](const auto& names) {
    return std::find_first_of(needed.begin(), needed.end(), names.begin(), names.end()) != needed.end();
  };
  const bool open_mpi = needs(kOpenMpiLibraries);
  if (open_mpi == needs(kMpichLibraries)) {
    return std::nullopt;
  }
  return open_mpi ? Library::open_mpi : Library::mpich;
}

}  // namespace gradwire::cli
