// gradwire ratio: what each codec makes of gradients of the user's own job: size, error and speed.
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>

#include "base/durable_file.hpp"
#include "base/text.hpp"
#include "base/units.hpp"
#include "cli/codec_table.hpp"
#include "cli/commands.hpp"
#include "cli/gradients.hpp"
#include "gradwire/error.hpp"
#include "plan/plan.hpp"
#include "plot/svg_plot.hpp"
#include "policy/stage.hpp"

namespace gradwire::cli {
namespace {

using nlohmann::ordered_json;

constexpr std::size_t kUsualSteps = 8;  // of a gradient that was recorded once
constexpr std::size_t kMostSteps = 10000;
constexpr int kRatioDigits = 3;

struct Steps {
  std::size_t count = 0;
  bool repeated = false;  // each gradient is there once, and is taken for that of all steps
};

Steps steps_to_take(const RatioOptions& options, const Gradients& gradients) {
  const std::size_t recorded = gradients.recorded_steps;
  if (recorded == 1) {
    return {options.steps.value_or(kUsualSteps), true};
  }
  if (options.steps.value_or(recorded) > recorded) {
    throw Error(ErrorCode::invalid_argument, "--steps " + std::to_string(*options.steps) + ": the files hold " +
                                                 std::to_string(recorded) + " steps; name no more, or more files");
  }
  return {options.steps.value_or(recorded), false};
}

// Returns how a bucket travels after any warm-up. Under `auto`, which chooses while a job runs, it is the last level
// that the policy allows, which has the largest error.
const policy::Stage& last_stage(const plan::Bucket& bucket) {
  return bucket.levels.empty() ? bucket.stages.back() : bucket.levels.back().stage;
}

CodecChoice choice_of_policy(const std::string& file, const Gradients& gradients) {
  std::vector<TensorInfo> tensors;
  for (const GradientSteps& tensor : gradients.tensors) {
    tensors.push_back({.name = tensor.name, .count = tensor.count, .dtype = tensor.dtype, .ndim = tensor.ndim});
  }
  const plan::Plan plan = plan::make_plan(Policy::load(file), tensors, {});
  CodecChoice choice{.name = std::filesystem::path(file).filename().string(), .codecs = {}};
  for (const auto& tensor : plan.tensors) {
    const policy::Stage& stage = last_stage(plan.buckets[tensor.bucket]);
    choice.codecs.push_back(stage.codec);
    choice.feedback.push_back(stage.error_feedback);
  }
  return choice;
}

std::vector<CodecChoice> choices_of(const RatioOptions& options, const Gradients& gradients) {
  std::vector<CodecChoice> choices;
  std::set<std::string> seen;
  for (const std::string& text : options.codecs) {
    const CodecSpec codec = CodecSpec::parse(text);
    if (seen.insert(codec.to_string()).second) {
      choices.push_back({text, std::vector<CodecSpec>(gradients.tensors.size(), codec)});
    }
  }
  if (options.policy) {
    choices.push_back(choice_of_policy(*options.policy, gradients));
  }
  return choices;
}

// "lossy*": the codec's own row is measured with feedback, which is off by default.
std::string kind_of(const CodecRow& row, const CodecChoice& choice) {
  const bool own_row = choice.feedback.empty();
  return !row.lossy ? "exact" : own_row && !policy::wants_feedback(choice.codecs.front()) ? "lossy*" : "lossy";
}

std::string error_text(double share) { return format_number(share * 100, kRatioDigits) + "%"; }
std::string speed_text(double bytes_a_second) { return format_number(bytes_a_second / 1e9, kRatioDigits) + " GB/s"; }

std::string feedback_head(const Steps& steps) { return std::to_string(steps.count) + " steps, feedback"; }

std::string elements_text(double elements) {
  constexpr double kMillion = 1e6;
  return elements < kMillion ? std::to_string(static_cast<std::uint64_t>(elements)) + " elements"
                             : format_number(elements / kMillion, kRatioDigits) + " million elements";
}

void print_gradients(const RatioOptions& options, const Gradients& gradients, const Steps& steps, std::ostream& out) {
  double elements = 0;
  double bytes = 0;
  for (const GradientSteps& tensor : gradients.tensors) {
    elements += static_cast<double>(tensor.count);
    bytes += tensor_bytes(tensor);
  }
  for (const std::string& note : gradients.notes) {
    out << text::printable(note) << '\n';
  }
  out << text::printable(options.files.front())
      << (options.files.size() > 1 ? " and " + std::to_string(options.files.size() - 1) + " more" : std::string())
      << ": " << gradients.tensors.size() << (gradients.tensors.size() == 1 ? " tensor, " : " tensors, ")
      << elements_text(elements) << ", " << format_bytes(static_cast<std::uint64_t>(bytes)) << " a step; "
      << (steps.repeated ? "one step, which is repeated for the error of " + std::to_string(steps.count) + " steps"
                         : std::to_string(steps.count) + " steps")
      << "\n\n";
}

void print_rows(const std::vector<CodecRow>& rows, const std::vector<CodecChoice>& choices, const Steps& steps,
                std::ostream& out) {
  std::vector<std::vector<std::string>> cells{
      {"codec", "", "ratio", "error, one step", "error, " + feedback_head(steps), "encode", "decode and add"}};
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const CodecRow& row = rows[i];
    cells.push_back({text::printable(row.name), kind_of(row, choices[i]), format_number(row.ratio(), kRatioDigits),
                     error_text(row.effect.relative_error()), error_text(row.effect.relative_mean_error()),
                     speed_text(row.encode_rate), speed_text(row.decode_rate)});
  }
  out << text::table(cells, "llrrrrr")
      << "ratio: bytes of the gradients / bytes of their frames, headers included; of exact+zstd, which depends on the "
         "values, measured\n"
         "errors: relative, by the L2 norm, of this rank's gradients; with feedback each step adds what the step "
         "before\n"
         "left out, and the mean of the steps is compared; without, independent errors fall by sqrt("
      << steps.count << ") = " << format_number(std::sqrt(static_cast<double>(steps.count)), kRatioDigits)
      << "\n"
         "lossy*: feedback is off by default, and on by error_feedback = \"on\" in a policy. The row of a policy has "
         "feedback\n"
         "where the policy has it, and leaves out its warm-up. What a training bears: docs/how-to/choose-a-codec.md "
         "(of an\n"
         "installation: in share/doc/gradwire)\n"
         "speed: bytes of gradients, one thread, on the largest tensor\n";
  if (!rows.empty() && rows.front().effect.nonfinite > 0) {
    out << "note: " << rows.front().effect.nonfinite
        << " values are NaN or Inf, and are left out of the errors with what they spoil\n";
  }
}

ordered_json to_json(const Gradients& gradients, const std::vector<CodecChoice>& choices,
                     const std::vector<CodecRow>& rows, const Steps& steps) {
  ordered_json root{{"schema", "gradwire.ratio.1"},
                    {"steps", steps.count},
                    {"repeated", steps.repeated},
                    {"rows", ordered_json::array()}};
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const CodecRow& row = rows[i];
    ordered_json tensors = ordered_json::array();
    for (std::size_t t = 0; t < gradients.tensors.size(); ++t) {
      const GradientSteps& tensor = gradients.tensors[t];
      tensors.push_back({{"name", tensor.name},
                         {"dtype", to_string(tensor.dtype)},
                         {"count", tensor.count},
                         {"codec", choices[i].codecs[t].to_string()},
                         {"feedback", choices[i].feedback.empty() || choices[i].feedback[t]},
                         {"ratio", tensor_bytes(tensor) / row.tensor_frame_bytes[t]},
                         {"error", row.tensors[t].relative_error()},
                         {"error_with_feedback", row.tensors[t].relative_mean_error()},
                         {"nonfinite", row.tensors[t].nonfinite}});
    }
    root["rows"].push_back({{"codec", row.name},
                            {"lossy", row.lossy},
                            {"bytes", row.bytes},
                            {"frame_bytes", row.frame_bytes},
                            {"ratio", row.ratio()},
                            {"error", row.effect.relative_error()},
                            {"error_with_feedback", row.effect.relative_mean_error()},
                            {"nonfinite", row.effect.nonfinite},
                            {"encode_bytes_per_s", row.encode_rate},
                            {"decode_bytes_per_s", row.decode_rate},
                            {"tensors", std::move(tensors)}});
  }
  return root;
}

std::string plot_of(const std::vector<CodecRow>& rows, const Steps& steps) {
  const auto error_plot = [&](const std::string& title, bool of_mean) {
    plot::Plot plot{.title = title,
                    .x = {.label = "ratio", .logarithmic = true},
                    .y = {.label = "relative error, %", .logarithmic = true}};
    for (const CodecRow& row : rows) {
      const double error = of_mean ? row.effect.relative_mean_error() : row.effect.relative_error();
      plot.series.push_back(
          {.name = row.name, .points = {{row.ratio(), error > 0 ? error * 100 : NAN}}, .line = false});
    }
    return plot;
  };
  return plot::render_svg({error_plot("One step", false), error_plot("Mean of " + feedback_head(steps), true)},
                          "gradwire ratio; down and to the right is better; what loses nothing has no dot");
}

}  // namespace

int ratio(const RatioOptions& options, std::ostream& out) {
  const auto raw = options.dtype ? std::optional(parse_dtype(*options.dtype)) : std::nullopt;
  if (options.steps.value_or(1) < 1 || options.steps.value_or(1) > kMostSteps) {
    throw Error(ErrorCode::invalid_argument, "--steps " + std::to_string(*options.steps) +
                                                 ": write a number from 1 to " + std::to_string(kMostSteps));
  }
  const Gradients gradients = read_gradients(options.files, raw);
  const Steps steps = steps_to_take(options, gradients);
  const std::vector<CodecChoice> choices = choices_of(options, gradients);
  const std::vector<CodecRow> rows = measure_codecs(gradients, choices, steps.count);
  print_gradients(options, gradients, steps, out);
  print_rows(rows, choices, steps, out);
  if (options.json) {
    write_report_file(*options.json, [&](std::ostream& stream) {
      stream << to_json(gradients, choices, rows, steps).dump(1, ' ', false, ordered_json::error_handler_t::replace)
             << '\n';
    });
  }
  if (options.svg) {
    write_report_file(
        *options.svg, [&](std::ostream& stream) { stream << plot_of(rows, steps); }, Readers::everybody);
    out << "plot: " << *options.svg << '\n';
  }
  return 0;
}

}  // namespace gradwire::cli
