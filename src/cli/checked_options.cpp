#include "cli/checked_options.hpp"

#include <filesystem>

#include "base/environment.hpp"
#include "base/text.hpp"
#include "base/units.hpp"
#include "gradwire/error.hpp"
#include "gradwire/policy.hpp"
#include "plan/call_plan.hpp"
#include "policy/stage.hpp"
#include "transport/tcp/tcp_join_file.hpp"
#include "transport/tcp/tcp_keys.hpp"

namespace gradwire::cli {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void reject(const std::string& what) { throw Error(ErrorCode::invalid_argument, what); }

// The option or variable that names the policy; null: there is none.
const char* name_of_policy(const RunOptions& options) {
  return options.policy ? "--policy" : environment("GRADWIRE_POLICY") ? "GRADWIRE_POLICY" : nullptr;
}

}  // namespace

std::optional<std::string> checked_policy(const RunOptions& options, std::ostream& out) {
  const std::optional<std::string> file = options.policy ? options.policy : environment("GRADWIRE_POLICY");
  if (!file) {
    return std::nullopt;
  }
  const plan::CallPlanner calls(Policy::load(*file));
  for (const std::string& note : calls.notes()) {
    out << "gradwire: note: " << text::printable(note) << '\n';
  }
  return fs::absolute(*file).string();
}

std::optional<std::string> checked_codec(const RunOptions& options, std::ostream& out) {
  std::optional<std::string> codec = options.codec ? options.codec : environment("GRADWIRE_CODEC");
  if (!codec) {
    return std::nullopt;
  }
  const char* policy = name_of_policy(options);
  if (policy != nullptr) {
    reject(std::string(options.codec ? "--codec" : "GRADWIRE_CODEC") + " and " + policy +
           " are both given; a policy names its codecs itself, so drop one of the two");
  }
  if (*codec != "auto") {
    try {
      const CodecSpec spec = CodecSpec::parse(*codec);
      if (const std::string note = policy::selection_note(spec); !note.empty()) {
        out << "gradwire: note: " << note << '\n';
      }
    } catch (const Error& error) {
      reject(std::string(options.codec ? "--codec: " : "GRADWIRE_CODEC: ") + error.what() + ", or auto");
    }
  }
  return codec;
}

CodecOptions checked_codec_options(const RunOptions& options) {
  CodecOptions chosen{.feedback = environment("GRADWIRE_ERROR_FEEDBACK"),
                      .f64 = environment("GRADWIRE_F64"),
                      .max_error = options.max_error ? options.max_error : environment("GRADWIRE_MAX_ERROR")};
  const char* policy = name_of_policy(options);
  const auto refuse_beside_a_policy = [policy](const std::string& name, const char* key) {
    if (policy != nullptr) {
      reject(name + " and " + policy + " are both given; write " + key + " in the policy instead of " + name);
    }
  };
  if (options.no_feedback || chosen.feedback.value_or("auto") != "auto") {
    refuse_beside_a_policy(options.no_feedback ? "--no-feedback" : "GRADWIRE_ERROR_FEEDBACK",
                           options.no_feedback ? "error_feedback = \"off\"" : "error_feedback");
  }
  if (options.f64 || chosen.f64.value_or("0") != "0") {
    refuse_beside_a_policy(options.f64 ? "--f64" : "GRADWIRE_F64", "a rule with dtype = \"f64\"");
  }
  if (chosen.max_error) {
    const std::string name = options.max_error ? "--max-error" : "GRADWIRE_MAX_ERROR";
    refuse_beside_a_policy(name, "max_error");
    try {
      if (parse_fraction(*chosen.max_error) >= 1) {
        reject(name + ": " + *chosen.max_error +
               " bounds nothing; write a share of the sum below 1, such as 1% or 0.01");
      }
    } catch (const Error& error) {
      reject(std::string(error.what()).starts_with(name) ? error.what() : name + ": " + error.what());
    }
  }
  chosen.feedback = options.no_feedback ? "off" : chosen.feedback;
  chosen.f64 = options.f64 ? "1" : chosen.f64;
  return chosen;
}

RunOptions with_join_files(RunOptions options) {
  const char* let_join = options.let_join ? "--let-join" : "GRADWIRE_LET_JOIN";
  const char* join = options.join ? "--join" : "GRADWIRE_JOIN";
  options.let_join = options.let_join ? options.let_join : environment("GRADWIRE_LET_JOIN");
  options.join = options.join ? options.join : environment("GRADWIRE_JOIN");
  if (options.let_join && options.join) {
    reject(std::string(let_join) + " and " + join +
           " are both given; others can join by whoever joins, too, so write --join alone");
  }
  for (std::optional<std::string>* file : {&options.let_join, &options.join}) {
    if (*file) {
      *file = fs::absolute(**file).lexically_normal().string();
    }
  }
  if (options.let_join) {
    const fs::path folder = fs::path(*options.let_join).parent_path();
    if (!fs::is_directory(folder) || fs::is_directory(*options.let_join)) {
      reject(std::string(let_join) + ": " + *options.let_join + " cannot be written, since " +
             (fs::is_directory(folder) ? "it is a folder; write the name of a file in it"
                                       : folder.string() + " is no folder; make it, or name another file"));
    }
    if (options.restarts > 0) {
      reject(std::string("--restarts and ") + let_join +
             " are both given: processes that joined go on when the launcher ends, so that the job that starts again "
             "would be a second one; drop one of the two");
    }
    // A launcher may hide errors of its ranks. With a key the secrets in the file are sent to nobody in clear text.
    const auto keys = transport::tcp::ConnectionKeys::of_job();
    try {
      transport::tcp::check_join_file_is_free(*options.let_join, keys.get());
    } catch (const Error& error) {
      reject(std::string(let_join) + ": " + error.what());
    }
  }
  if (options.join && !fs::is_regular_file(*options.join)) {
    reject(std::string(join) + ": " + *options.join +
           " is not there; a job writes it that was started with gradwire run --let-join " + *options.join);
  }
  return options;
}

}  // namespace gradwire::cli
