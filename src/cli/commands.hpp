// The commands of the tool `gradwire`, each a function that prints and returns the exit status. main.cpp reads the
// command line and turns an Error into a message and kUsageStatus.
#pragma once

#include <optional>
#include <ostream>
#include <string>
#include <vector>

namespace gradwire::cli {

inline constexpr int kUsageStatus = 2;        // refused: a wrong argument, policy file or environment
inline constexpr int kCannotRunStatus = 127;  // as a shell says it of a command that it cannot find

/// Says what the policy file asks for; `ranks` is the world for which second hops are told. Error as Policy::load.
int check(const std::string& file, int ranks, std::ostream& out);

/// Version, build, libraries, this CPU, and every environment variable with its value.
int info(std::ostream& out);
/// Becomes the program that measures the links of the MPI job that this one was started in, as become_doctor().
int info_link();

struct PlanCommandOptions {
  std::string layers;             // model file, see docs/plan.md
  std::string link = "10Gbit/s";  // of a node, each way
  std::string latency = "30us";
  std::vector<int> ranks{8, 64, 512, 4096};
  int nodes_of = 1;                    // ranks that share a node's link
  std::string intra_link = "200GB/s";  // of a rank inside its node
  std::string intra_latency = "5us";
  std::vector<std::string> codecs{"bf16", "int8", "int4"};  // best quality first; topk only if asked
  std::string target_exposed = "10%";
  std::string in_flight = "64MiB";                       // memory of a rank's frames under way
  std::optional<std::string> codec_rate = std::nullopt;  // of every codec, instead of measuring them
  std::optional<std::string> svg = std::nullopt;         // file
};
/// Predicts the step time of a model at each scale under each codec, and prints the policy that speaks for. Error for
/// what cannot be read.
int plan(const PlanCommandOptions& options, std::ostream& out);

struct RunOptions {
  std::optional<std::string> policy;                  // file
  std::optional<std::string> codec;                   // instead: of every call that is large enough; neither: none is
  std::optional<std::string> report;                  // a directory, or a file that ends in .json
  std::optional<std::string> threads = std::nullopt;  // "multiple" or "job"
  bool dry_run = false;
  bool no_feedback = false;  // beside a codec: what it leaves out is not added to the next call
  bool f64 = false;          // likewise: compresses sums of f64, too
  std::optional<std::string> max_error = std::nullopt;  // likewise: a share; classes above it pass
  bool no_register = false;                             // ranks do not tell who has the drop-in
  std::optional<std::string> let_join = std::nullopt;   // file, by which others may join the job
  std::optional<std::string> join = std::nullopt;       // file of the job that the command joins
  int restarts = 0;                                     // at most, of a command that fails
  std::vector<std::string> command;                     // mpirun, srun, a script, ... and its arguments
};
/// Starts the command with gradwire preloaded in every rank, again where it fails, waits for it and prints what became
/// of its calls to `out`. Returns the status of its last run. Error before anything was started.
int run(const RunOptions& given, std::ostream& out);

struct ReportOptions {
  std::string folder;                                // of GRADWIRE_REPORT
  std::optional<std::string> output = std::nullopt;  // the page; none: report.html in the folder
  std::optional<std::string> json = std::nullopt;    // its numbers; none: beside the page
};
/// Makes a page of the histories that a job's ranks left there. Error that names the folder or the file.
int report(const ReportOptions& options, std::ostream& out);

struct DoctorOptions {
  std::optional<std::string> json = std::nullopt;  // file
  bool launched = false;             // by another gradwire doctor, which reads from the report how it ends
  std::vector<std::string> command;  // mpirun, srun, ... and its arguments; none: this is a rank
};
/// Without a command: becomes the program that looks at the MPI job that this one was started in. With one: starts this
/// command as such a job, and returns 1 where it found a problem, 2 where no rank reported. Error(unsupported) where
/// that program is not there.
int doctor(const DoctorOptions& options, std::ostream& out);
/// Becomes the program of MPI's beside this tool that looks at a job. Returns only if that is not there: by throwing
/// Error(unsupported) that names the command.
[[noreturn]] void become_doctor(const std::string& command, std::vector<std::string> arguments);

struct TopOptions {
  std::string folder;  // of GRADWIRE_METRICS=file:FOLDER
  std::string interval = "1s";
  bool once = false;
};
/// Shows the ranks of the job that writes there, until q is typed on the terminal; where standard output is none, one
/// block of lines an interval to `out`. A folder
/// that is missing is waited for. Error where it is a file, or with `once` holds nothing.
int top(const TopOptions& options, std::ostream& out);

struct TraceOptions {
  std::string folder;                                // of GRADWIRE_TRACE=FOLDER
  std::optional<std::string> steps = std::nullopt;   // "100-120"
  std::optional<std::string> output = std::nullopt;  // file of trace_merge; trace.pftrace in the folder
  bool json = false;                                 // of trace_summary
};
/// Writes what all ranks recorded as one file that Perfetto opens. What lacks is told to standard error. Error where
/// there is nothing, and in a build without protobuf.
int trace_merge(const TraceOptions& options, std::ostream& out);
/// Prints what steps' time went to. Likewise.
int trace_summary(const TraceOptions& options, std::ostream& out);

}  // namespace gradwire::cli
