#include "cli/job_options.hpp"

#include <charconv>
#include <memory>
#include <system_error>

#include "base/command_line.hpp"
#include "base/text.hpp"
#include "gradwire/error.hpp"

namespace gradwire::cli {
namespace {

// Formats usage lines with the name of the arguments behind the options.
class CommandFormatter : public CLI::Formatter {
 public:
  explicit CommandFormatter(bool optional) : optional_(optional) {}
  std::string make_usage(const CLI::App* /*app*/, std::string name) const override {
    return "Usage: " + name + (optional_ ? " [OPTIONS] [-- COMMAND...]\n" : " [OPTIONS] -- COMMAND...\n");
  }

 private:
  bool optional_;
};

// CLI11 would not say what to write.
std::string is_restarts(const std::string& text) {
  constexpr int kMost = 1000000;
  int number = -1;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  const bool right = error == std::errc() && end == text.data() + text.size() && number >= 0 && number <= kMost;
  return right ? ""
               : text::quote(text) + " is no number of restarts; write one from 0 to " + std::to_string(kMost) +
                     ", such as --restarts 3";
}

}  // namespace

CLI::App* add_run(CLI::App& app, RunOptions& options) {
  auto* run_command = app.add_subcommand(
      "run", "Run unchanged MPI jobs with compressed collectives: gradwire run --codec auto -- mpirun -np 4 ./job");
  run_command->formatter(std::make_shared<CommandFormatter>(false));
  run_command->footer("COMMAND: mpirun, srun, a script, or anything else that starts MPI jobs\n");
  run_command
      ->add_option("--policy", options.policy, "policy file, instead of --codec (gradwire check FILE explains it)")
      ->type_name("FILE");
  run_command
      ->add_option(
          "--codec", options.codec,
          "compress large float sums with this codec, which is lossy: int8, int4, ...; auto: int8 for those that "
          "it makes faster, found by trials in which the job gets MPI's sums. Without a codec or policy the job is "
          "observed: nothing is compressed, calls are timed, and the table says what auto would save")
      ->type_name("CODEC");
  run_command
      ->add_option("--report", options.report,
                   "directory for a page about the job, made from what its ranks did over time; with a name that ends "
                   "in .json: file for the numbers of the calls")
      ->type_name("DIRECTORY");
  run_command->add_flag("--dry-run", options.dry_run,
                        "observe, and count what the codec or policy, or int8 without one, would send");
  run_command->add_flag("--no-feedback", options.no_feedback,
                        "do not add what the codec leaves out of a call to the next one (in a policy: error_feedback = "
                        "\"off\"): for sums that are not gradients, and where tensors share a buffer");
  run_command->add_flag("--f64", options.f64, "also compress sums of f64 (in a policy: a rule with dtype = \"f64\")");
  run_command
      ->add_option("--max-error", options.max_error,
                   "leave calls uncompressed once their sums differ from the exact ones by more than this share, such "
                   "as 1% (in a policy: max_error)")
      ->type_name("SHARE");
  run_command
      ->add_option(
          "--threads", options.threads,
          "multiple: initialise MPI with that thread level, so that calls that return requests can be compressed; "
          "job: with the level that the job asks for")
      ->check(CLI::IsMember({"multiple", "job"}));
  run_command->add_flag("--no-register", options.no_register,
                        "do not listen for connections of ranks: every rank must then have the drop-in, and ranks find "
                        "out by a message in MPI_Init whether all do");
  run_command
      ->add_option("--link", options.link,
                   "emulate a slow link between the ranks of this host, which share it: everything that they send, by "
                   "gradwire or not, passes a network namespace of that rate, or rate and latency: 1Gbit/s,5ms")
      ->type_name("RATE[,LATENCY]");
  run_command->add_flag("--compare", options.compare,
                        "run the command twice, first without gradwire, then with it, and print times, bytes and "
                        "ratios; files that it writes are written twice");
  run_command
      ->add_option(
          "--record-gradients", options.record_gradients,
          "a directory: rank 0 writes the buffers of its sums there, as they are before each call, for gradwire "
          "ratio and gradwire plan --from")
      ->type_name("DIRECTORY");
  run_command->add_option("--steps", options.steps, "steps that --record-gradients records; default 5")->type_name("N");
  run_command
      ->add_option("--restarts", options.restarts,
                   "start the command again if it fails, at most this many times, on the hosts that are left; the job "
                   "continues from what it saved itself")
      ->type_name("N")
      ->check(is_restarts)
      ->capture_default_str();
  run_command
      ->add_option("--let-join", options.let_join,
                   "other processes may join this elastic job while it runs, by this file, which the job writes")
      ->type_name("FILE");
  run_command
      ->add_option("--join", options.join,
                   "join the job that wrote this file, without mpirun: gradwire run --join FILE -- ./job")
      ->type_name("FILE");
  run_command->prefix_command();  // take_command() reads arguments where "--" was forgotten
  return run_command;
}

CLI::App* add_doctor(CLI::App& app, DoctorOptions& options) {
  auto* doctor_command = app.add_subcommand(
      "doctor", "Check hosts, ranks and links of an MPI job: gradwire doctor -- mpirun --host a,b -np 4");
  doctor_command->formatter(std::make_shared<CommandFormatter>(true));
  doctor_command->footer("COMMAND: mpirun or srun with its options; without one, this process is a rank of the job\n");
  doctor_command->add_option("--json", options.json, "also write everything that was seen to this file, as JSON")
      ->type_name("FILE");
  doctor_command->add_flag("--launched", options.launched, "of ranks that gradwire doctor itself starts")->group("");
  doctor_command->prefix_command();
  return doctor_command;
}

std::vector<std::string> take_command(const CLI::App& app, const std::vector<std::string>& before,
                                      const std::vector<std::string>& behind, bool optional) {
  const std::string name = "gradwire " + app.get_name();
  const std::vector<std::string> others = app.remaining();
  if (!others.empty() && others.front().starts_with("-")) {
    throw Error(ErrorCode::invalid_argument, others.front() + " is no option of " + name + "; " + name +
                                                 " --help lists them, and the command comes behind --");
  }
  if (!others.empty()) {
    std::string line = "gradwire";
    const std::vector<std::string> first = without_secrets(before);
    const std::vector<std::string> second = without_secrets(behind);
    for (std::size_t i = 1; i < first.size(); ++i) {
      line += (first.size() - i == others.size() ? " -- " : " ") + text::shell_word(first[i]);
    }
    for (std::size_t i = 1; i < second.size(); ++i) {
      line += " " + text::shell_word(second[i]);
    }
    throw Error(ErrorCode::invalid_argument, "-- must stand before the command; write " + line);
  }
  if (behind.size() < 2 && (!optional || !behind.empty())) {
    throw Error(ErrorCode::invalid_argument,
                "there is no command; write " + name + " -- mpirun -np 4" + (optional ? "" : " ./job"));
  }
  return behind.empty() ? std::vector<std::string>() : std::vector<std::string>(behind.begin() + 1, behind.end());
}

}  // namespace gradwire::cli
