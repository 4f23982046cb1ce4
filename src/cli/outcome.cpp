#include "cli/outcome.hpp"

#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <sstream>
#include <string_view>

#include "base/mpi_libraries.hpp"
#include "base/text.hpp"
#include "cli/elf.hpp"
#include "cli/launch.hpp"
#include "cli/report.hpp"
#include "gradwire/error.hpp"
#include "gradwire/processes.hpp"
#include "transport/tcp/tcp_registration.hpp"
#include "watch/page/histories.hpp"
#include "watch/page/page.hpp"

namespace gradwire::cli {

namespace page = watch::page;

namespace {

namespace fs = std::filesystem;

std::string file_name(const std::string& word) { return fs::path(word).filename().string(); }

// The words of a script, or of the text behind sh -c, without comments.
std::vector<std::string> words_of_script(std::istream& script) {
  constexpr std::size_t kMost = 1 << 20;
  std::vector<std::string> words;
  std::size_t bytes = 0;
  for (std::string line; bytes < kMost && std::getline(script, line); bytes += line.size()) {
    const std::size_t first = line.find_first_not_of(" \t");
    if (first == std::string::npos || line[first] == '#') {
      continue;
    }
    for (std::size_t at = 0, end = 0; at < line.size(); at = end + 1) {
      end = std::min(line.find_first_of(" \t;&|()", at), line.size());
      if (end > at) {
        words.push_back(line.substr(at, end - at));
      }
    }
  }
  return words;
}

// The first program among the words that starts others without its own environment, or on another host or system.
std::string environment_dropper(const std::vector<std::string>& words) {
  constexpr std::array<std::string_view, 8> kDroppers{"sudo", "ssh",    "su",     "runuser",
                                                      "doas", "docker", "podman", "rsh"};
  for (std::size_t i = 0; i < words.size(); ++i) {
    std::string name = file_name(words[i]);
    if (std::find(kDroppers.begin(), kDroppers.end(), name) != kDroppers.end()) {
      return name;
    }
    if (name == "env" && i + 1 < words.size() &&
        (words[i + 1] == "-" || words[i + 1] == "-i" || words[i + 1] == "--ignore-environment")) {
      return "env " + words[i + 1];
    }
  }
  return "";
}

std::string environment_dropper(const KnownCommand& command) {
  std::vector<std::string> words;
  for (const std::string& word : command.words) {
    std::istringstream text(word);
    const std::vector<std::string> more = words_of_script(text);
    words.insert(words.end(), more.begin(), more.end());
  }
  std::string dropper = environment_dropper(words);
  if (dropper.empty() && command.job && is_script(*command.job)) {
    std::ifstream script(*command.job);
    dropper = environment_dropper(words_of_script(script));
  }
  return dropper;
}

// The name of a job's MPI library for which there is no drop-in: "libmpi_cray.so.12".
std::string unknown_mpi(const fs::path& job) {
  const auto is_one_of = [](const auto& names, const std::string& name) {
    return std::find(names.begin(), names.end(), name) != names.end();
  };
  for (const std::string& library : needed_libraries(job)) {
    const bool of_c = library.starts_with("libmpi.so") || library.starts_with("libmpich.so") ||
                      library.starts_with("libmpi_cray") || library.starts_with("libmpi_gnu") ||
                      library.starts_with("libmpi_nvidia") || library.starts_with("libmsmpi") ||
                      library.starts_with("libpsmpi");
    if (of_c && !is_one_of(kOpenMpiLibraries, library) && !is_one_of(kMpichLibraries, library)) {
      return library;
    }
  }
  return "";
}

// The reason why the loader ignores LD_PRELOAD for the job; empty if it does not.
std::string not_preloadable(const fs::path& job) {
  struct stat status {};
  if (::stat(job.c_str(), &status) == 0 && (status.st_mode & (S_ISUID | S_ISGID)) != 0) {
    return job.string() +
           " runs as another user or group (chmod u-s,g-s takes that from it), so that the loader drops "
           "LD_PRELOAD";
  }
  if (is_32_bit(job)) {
    return job.string() + " is a program of 32 bits, into which nothing of 64 bits can be preloaded";
  }
  return statically_linked(job) ? job.string() + " is statically linked, so nothing can be preloaded into it" : "";
}

std::string names_of(const std::set<std::string>& hosts) {
  std::string names;
  for (const std::string& host : hosts) {
    names += (names.empty() ? "" : ", ") + text::printable(host);
  }
  return names;
}

// Explains a missing report where ranks have registered.
std::string why_without(const SeenRanks& seen, const std::string& folder, bool named) {
  const bool elsewhere = !seen.hosts_of_root.empty() && !seen.hosts_of_root.contains(transport::tcp::host_name());
  if (elsewhere) {
    return "rank 0 ran on " + names_of(seen.hosts_of_root) + ", which does not share " + folder + " with this host" +
           (named ? "" : "; name a file or a directory that all hosts share by --report");
  }
  if (seen.asked == 0) {  // ranks of a world of one do not ask
    return std::to_string(seen.begun) + (seen.begun == 1 ? " process" : " processes") +
           " called MPI_Init with gradwire preloaded, and no rank 0 called MPI_Finalize, where the report is written";
  }
  if (seen.hosts_of_root.empty()) {
    return "rank 0, which writes it, called MPI_Init without gradwire preloaded, as a statically linked program does, "
           "or "
           "one whose environment was dropped (env -i, sudo, ssh)";
  }
  return "rank 0 called MPI_Init, but not MPI_Finalize, where the report is written";
}

// Explains a missing report where no rank has registered.
std::string why_unseen(const KnownCommand& command) {
  if (command.job) {
    if (std::string why = not_preloadable(*command.job); !why.empty()) {
      return why;
    }
    if (const std::string library = unknown_mpi(*command.job); !library.empty()) {
      return command.job->string() + " is linked with " + library +
             ", an MPI for which gradwire has no drop-in (it has them for Open MPI 4 and 5, and for MPICH and its ABI)";
    }
  }
  if (const std::string dropper = environment_dropper(command); !dropper.empty()) {
    return dropper + " starts what comes after it without LD_PRELOAD and the GRADWIRE_ variables, so that no process " +
           "called MPI_Init with gradwire preloaded; put gradwire run behind " + dropper + ", before mpirun";
  }
  if (command.job && linked_with(*command.job)) {
    return command.job->string() +
           " is linked with MPI, but called neither MPI_Init nor MPI_Init_thread with gradwire " +
           "preloaded: it ended before, or uses sessions of MPI alone (MPI_Session_init), which gradwire does not "
           "handle";
  }
  if (command.job && !is_script(*command.job) && !is_interpreter(*command.job)) {
    return "the job is no MPI job: " + command.job->string() +
           " is linked with no MPI, and no process of it called MPI_Init with gradwire preloaded";
  }
  return "no process called MPI_Init with gradwire preloaded: what was started is no MPI job, is statically linked, or "
         "has an environment without LD_PRELOAD (after env -i, sudo or ssh)";
}

bool is_python(const KnownCommand& command) {
  return std::any_of(command.words.begin(), command.words.end(), [](const std::string& word) {
    return file_name(word).starts_with("python") || word.ends_with(".py");
  });
}

void tell_of(const fs::path& report, const KnownCommand& command, std::ostream& out) {
  try {
    const Report read = read_report(report);
    out << '\n' << read.text;
    if (read.disabled) {
      return;
    }
    if (read.has_session && read.compressed_calls == 0) {
      out << "gradwire: the job has a session of its own, whose messages are not in the table: it counts MPI's "
             "collective calls. Session::statistics() and --report DIRECTORY show what the session sent\n";
    } else if (read.calls == 0) {
      out << "gradwire: warning: the job called no function that gradwire handles"
          << (command.compresses ? ", so nothing was compressed" : "")
          << (is_python(command) ? "; mpi4py's comm.allreduce, written small, pickles objects and sends them point to "
                                   "point: for arrays "
                                   "write comm.Allreduce(send, receive)"
                                 : "; it handles MPI_Allreduce, MPI_Reduce, MPI_Reduce_scatter and their like")
          << '\n';
    } else if (read.ranks == 1) {
      out << "gradwire: warning: the job has one rank, which sends nothing; start more, as by mpirun -np 4\n";
    } else if (read.compressed_calls == 0 && command.compresses) {
      out << "gradwire: warning: no call was compressed; the table says why\n";
    }
  } catch (const Error& error) {
    out << "gradwire: " << error.what() << '\n';
  }
}

// Whether the report has no calls: a job that only uses sessions calls nothing that the drop-in would replace.
bool is_empty_report(const fs::path& report) {
  try {
    return read_report(report).calls == 0;
  } catch (const Error&) {
    return false;
  }
}

}  // namespace

std::optional<RankOutcome> outcome_of_ranks(const SeenRanks& seen, int status, bool others_may_join) {
  if (seen.elastic == 0) {
    return std::nullopt;
  }
  const auto named = [](int code) {
    return code == 0               ? std::string("well")
           : code == kExitExpelled ? "with 81 (the others went on without it)"
           : code == kExitTooFew   ? "with 82 (fewer than min_ranks were left)"
                                   : "with " + std::to_string(code);
  };
  RankOutcome outcome{.status = status, .text = {}};
  int silent = seen.elastic - seen.never_placed;
  int worst = 0;
  for (const auto& [code, count] : seen.ended_as) {
    outcome.text += (outcome.text.empty() ? "" : ", ") + std::to_string(count) + " ended " + named(code);
    silent -= count;
    const bool says_more = worst == 0 || worst == kExitExpelled || code == kExitTooFew;
    worst = code != 0 && says_more && worst != kExitTooFew ? code : worst;
  }
  if (silent > 0) {
    outcome.text += (outcome.text.empty() ? "" : ", ") + ("nothing was heard of the end of " + std::to_string(silent));
  }
  if (seen.never_placed > 0) {
    outcome.text += ", " + std::to_string(seen.never_placed) + " waited for a place until the end";
  }
  outcome.text = "of " + std::to_string(seen.elastic) + " processes " + outcome.text;
  const bool may_live_on = others_may_join && seen.ended_as.empty();  // processes that joined may run on
  if (status == 0 && !seen.ended_as.contains(0) && !may_live_on) {
    outcome.status = worst != 0 ? worst : 1;
  }
  return outcome;
}

std::string why_no_report(const ReportFile& report, const KnownCommand& command, const std::optional<SeenRanks>& seen) {
  const std::string folder = report.path().parent_path().string();
  if (seen && seen->begun + seen->asked > 0) {
    return why_without(*seen, folder, report.named());
  }
  // If ranks have not registered, this may be the reason too.
  const std::string unshared = ", or rank 0 ran on a host that does not share " + folder +
                               (report.named() ? "" : "; name a file or a directory that all hosts share by --report");
  return why_unseen(command) + (seen ? "" : unshared);
}

void tell_outcome(const ReportFile& file, const KnownCommand& command, const std::optional<SeenRanks>& seen, int status,
                  std::ostream& out) {
  std::vector<fs::path> reports = file.written();
  if (file.has_histories()) {
    std::erase_if(reports, is_empty_report);
    if (reports.empty()) {
      return;
    }
  }
  for (const fs::path& report : reports) {
    tell_of(report, command, out);
  }
  if (reports.empty() && seen && seen->elastic > 0) {
    return;  // its ranks use a session, and write no such report when one of them was lost
  }
  if (reports.empty() && status == 0) {
    out << "gradwire: warning: no report was written: " << why_no_report(file, command, seen) << '\n';
  } else if (reports.empty()) {
    out << "gradwire: the job ended with status " << status << " before it wrote a report\n";
  }
}

std::string steps_of(const ReportFile& report) {
  double steps = 0;
  try {
    if (report.has_histories()) {
      for (const page::RankHistory& rank : page::read_job(*report.directory()).ranks) {
        steps = std::max(steps, rank.last("steps"));
      }
    }
  } catch (const Error&) {  // the file is incomplete
  }
  return steps > 0 ? "its ranks had told of " + std::to_string(static_cast<long long>(steps)) + " steps" : "";
}

void make_page(const fs::path& folder, std::ostream& out) {
  const page::PageFiles files = page::files_in(folder);
  try {
    const page::Summary summary = page::write_page(folder, files);
    for (const std::string& sentence : summary.advice) {
      out << "gradwire: " << text::printable(sentence) << '\n';
    }
    for (const std::string& note : summary.notes) {
      out << "gradwire: note: " << note << '\n';
    }
    out << "gradwire: the report is " << files.html.string() << '\n';
  } catch (const Error& error) {
    out << "gradwire: no page was made: " << text::printable(error.what()) << '\n';
  }
}

}  // namespace gradwire::cli
