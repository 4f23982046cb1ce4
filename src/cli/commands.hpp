// The commands of the tool `gradwire`, each a function that prints and returns the exit status. main.cpp reads the
// command line and turns an Error into a message and kUsageStatus.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <ostream>
#include <string>
#include <vector>

namespace gradwire::cli {

inline constexpr int kUsageStatus = 2;        // refused: a wrong argument, policy file or environment
inline constexpr int kCannotRunStatus = 127;  // a shell's status for a command that it cannot find

/// Prints what the policy file asks for; `ranks` is the world size for which it shows second hops. Errors are those of
/// Policy::load.
int check(const std::string& file, int ranks, std::ostream& out);

/// Prints version, build, libraries, this CPU, and every environment variable with its value.
int info(std::ostream& out);
/// Becomes the program that measures the links of the MPI job in which this one was started, as become_doctor() does.
int info_link();
/// Draws this host's topology, and says what a process of this binding would bind.
int info_topology(std::ostream& out);

struct PlanCommandOptions {
  std::optional<std::string> layers;                  // model file, see docs/how-to/plan.md
  std::optional<std::string> from = std::nullopt;     // instead: recorded gradients, or a report of gradwire run
  std::optional<std::string> compute = std::nullopt;  // with it: how long a step computes
  std::optional<std::string> gpu = std::nullopt;      // GPUs and their links, instead of the links below
  std::vector<std::string> buckets{"1MiB", "4MiB", "25MiB", "256MiB"};  // with it: sizes, where there is no model
  std::string link = "10Gbit/s";                                        // a node's link, each way
  std::string latency = "30us";
  std::vector<int> ranks{8, 64, 512, 4096};
  int nodes_of = 1;                    // number of ranks that share a node's link
  std::string intra_link = "200GB/s";  // a rank's link inside its node
  std::string intra_latency = "5us";
  std::vector<std::string> codecs{"bf16", "int8", "int4"};  // best quality first; topk only if asked
  std::string target_exposed = "10%";
  std::string in_flight = "64MiB";                       // memory for a rank's frames under way
  std::optional<std::string> codec_rate = std::nullopt;  // rate of every codec, instead of measuring them
  std::optional<std::string> svg = std::nullopt;         // file
};
/// Predicts the step time of a model at each scale under each codec, and prints the best policy. Throws an Error where
/// the file cannot be read.
int plan(const PlanCommandOptions& options, std::ostream& out);

struct RatioOptions {
  std::vector<std::string> files;                   // files and folders of gradients: record/gradient_files.hpp
  std::optional<std::string> dtype = std::nullopt;  // of raw files
  std::vector<std::string> codecs{"exact", "bf16", "fp16", "fp8", "int8", "int4", "int2", "sign", "topk(1%)+int8"};
  std::optional<std::string> policy = std::nullopt;  // file; one more row
  std::optional<std::size_t> steps = std::nullopt;   // none: all that are recorded
  std::optional<std::string> json = std::nullopt;    // file
  std::optional<std::string> svg = std::nullopt;     // file
};
/// Prints ratio, error and speed of each codec on the gradients. Throws an Error that names the file that cannot be
/// read or written.
int ratio(const RatioOptions& options, std::ostream& out);

struct RunOptions {
  std::optional<std::string> policy;                  // file
  std::optional<std::string> codec;                   // for every large enough call, instead of a policy; neither: none
  std::optional<std::string> report;                  // a directory, or a file that ends in .json
  std::optional<std::string> threads = std::nullopt;  // "multiple" or "job"
  bool dry_run = false;
  bool no_feedback = false;                             // beside a codec: what it drops is not added to the next call
  bool f64 = false;                                     // beside a codec: compresses sums of f64, too
  std::optional<std::string> max_error = std::nullopt;  // beside a codec: a share; classes with a larger error pass
  bool no_register = false;                             // ranks do not report whether they have the drop-in
  std::optional<std::string> let_join = std::nullopt;   // file by which others may join the job
  std::optional<std::string> join = std::nullopt;       // file of the job that the command joins
  std::optional<std::string> link = std::nullopt;       // emulated between the ranks: "1Gbit/s,5ms"
  bool compare = false;                                 // runs the command twice, without gradwire and with it
  std::optional<std::string> record_gradients = std::nullopt;  // a directory
  std::optional<std::uint64_t> steps = std::nullopt;           // to record; none: as RecordTarget says
  int restarts = 0;                                            // most restarts of a command that fails
  std::vector<std::string> command;                            // mpirun, srun, a script, ... and its arguments
};
/// Starts the command with gradwire preloaded in every rank, again where it fails, waits for it and prints a report on
/// its calls to `out`. Returns the status of its last run. Throws only before anything was started.
int run(const RunOptions& given, std::ostream& out);

struct ReportOptions {
  std::string folder;                                // the folder of GRADWIRE_REPORT, or its FILE.json
  std::optional<std::string> output = std::nullopt;  // the page; none: report.html in the folder
  std::optional<std::string> json = std::nullopt;    // its numbers; none: beside the page
  std::optional<std::string> second = std::nullopt;  // the folder of a run that the first is compared with
  std::vector<std::string> jobs;                     // names, of one job or of the two; none: those that began last
};
/// Makes a page from the histories of a job's ranks, or one that compares two runs; prints the table of a report of
/// replaced calls. Throws an Error that names the folder or the file.
int report(const ReportOptions& options, std::ostream& out);

/// Writes a new key of a job to a file, as write_key_file() does.
int key_new(const std::string& file, std::ostream& out);
struct KeyDeriveOptions {
  std::string right;   // "join" or "observe"
  std::string file;    // with the job's key
  std::string output;  // a new file for the derived key
};
/// Derives a key with fewer rights. Throws an Error where the key cannot be read, the file cannot be written, or the
/// library of cryptography is not there.
int key_derive(const KeyDeriveOptions& options, std::ostream& out);
/// Prints the check value of a key, by which files of different hosts can be compared.
int key_check(const std::string& file, std::ostream& out);

struct DoctorOptions {
  std::optional<std::string> json = std::nullopt;  // file
  bool launched = false;             // started by another gradwire doctor, which reads the end from its report
  std::vector<std::string> command;  // mpirun, srun, ... and its arguments; none: this is a rank
};
/// Without a command: becomes the program that checks the MPI job in which this one was started. With one: starts the
/// command as such a job, and returns 1 where it found a problem, 2 where no rank reported. Error(unsupported) where
/// that program is not there.
int doctor(const DoctorOptions& options, std::ostream& out);
/// Becomes the program of MPI's beside this tool that looks at a job. Returns only if that is not there: by throwing
/// Error(unsupported) that names the command.
[[noreturn]] void become_doctor(const std::string& command, std::vector<std::string> arguments);

struct TopOptions {
  std::string folder;  // a directory, or a target as in GRADWIRE_METRICS: file:, unix: or http:
  std::string interval = "1s";
  bool once = false;
  std::optional<std::string> job = std::nullopt;         // its name; none: the job that runs, or ran, last
  std::optional<std::string> token_file = std::nullopt;  // for metrics over HTTP; none: GRADWIRE_METRICS_TOKEN names it
};
/// Shows the ranks of a job that writes there, until q is typed on the terminal. Where standard output is no
/// terminal, it writes one block of lines an interval to `out`. It waits for a missing folder. Throws an Error where
/// the folder is a file, or with `once` where it, or the job, has no files.
int top(const TopOptions& options, std::ostream& out);

struct TraceOptions {
  std::string folder;                                // the FOLDER of GRADWIRE_TRACE=FOLDER
  std::optional<std::string> steps = std::nullopt;   // "100-120"
  std::optional<std::string> output = std::nullopt;  // file for trace_merge; default: trace.pftrace in the folder
  bool json = false;                                 // for trace_summary
};
/// Writes the records of all ranks as one file that Perfetto opens. Reports missing files on standard error. Throws an
/// Error where there are no records, and in a build without protobuf.
int trace_merge(const TraceOptions& options, std::ostream& out);
/// Prints what the steps' time was spent on. Missing files and errors are handled as above.
int trace_summary(const TraceOptions& options, std::ostream& out);

}  // namespace gradwire::cli
