// The text that ranks compare before the first byte of data moves, its hash, and the message for ranks that differ.
#include <algorithm>
#include <array>
#include <optional>
#include <string_view>
#include <vector>

#include "base/text.hpp"
#include "base/units.hpp"
#include "gradwire/version.hpp"
#include "plan/hash.hpp"
#include "plan/plan.hpp"
#include "policy/sync.hpp"

namespace gradwire::plan {
namespace {

// Lines are "item: value". Tensors and the policies that they resolved to are separate items, so that the first
// difference is named correctly: another tensor, or another policy.
constexpr std::string_view kTensorCount = "tensors";
constexpr std::string_view kTensor = "tensor ";
constexpr std::string_view kNodes = "nodes";                     // written by session/runner/agreements.cpp
constexpr std::string_view kDeviceChunks = "chunks on devices";  // written by session/device/device_runner.cpp

void add_line(std::string& text, const std::string& item, const std::string& value) {
  text += item + ": " + value + '\n';
}

std::string resolved(const Bucket& bucket, const Plan& plan) {
  std::string text;
  for (const policy::Stage& stage : bucket.stages) {
    text += (text.empty() ? "codec " : "; then ") + policy::to_string(stage);
  }
  for (const policy::Level& level : bucket.levels) {
    text += (&level == bucket.levels.data() ? ", auto among " : "; ") + policy::to_string(level.stage);
  }
  return text + ", algorithm " + std::string(to_string(bucket.algorithm)) +
         (plan.by_library(bucket) ? " of the library" : "");
}

std::string registered(const TensorInfo& info) {
  return (info.parameters == 0 ? "" : ", parameters " + std::to_string(info.parameters)) +
         (info.scaled ? ", with a scale" : "");
}

std::string exact(double value) { return format_number(value); }

std::string synchronised(const Sync& sync) {
  return policy::is_step(sync) ? "" : ", sync " + policy::to_string(sync, 0);
}

std::string decayed(double decay) { return decay == 1 ? "" : ", decay " + exact(decay); }

std::string turn(const Bucket& bucket) {
  return bucket.sync.stagger ? ", offset " + std::to_string(bucket.sync_offset) : "";
}

std::string dwelling(const Policy::AutoOptions& options) {
  return "dwell " + std::to_string(options.dwell) + ", window " + std::to_string(options.window);
}

std::string choosing(const Plan& plan) {
  return "gain " + exact(plan.auto_options.gain) + ", cost " + exact(plan.auto_options.cost) + ", " +
         dwelling(plan.auto_options) + ", link " + (plan.link ? plan.link->to_string() : "measured");
}

std::string advising(const Plan& plan) {
  const Policy::Batch& batch = *plan.batch;
  return "at most " + exact(batch.target_exposed) + " exposed, accumulation " + std::to_string(batch.min_accumulation) +
         " to " + std::to_string(batch.max_accumulation) + ", scaling " +
         (batch.scaling == BatchScaling::linear ? "linear, " : "sqrt, ") + dwelling(plan.auto_options);
}

struct Line {
  std::string_view item;
  std::string_view value;
};

std::optional<Line> take_line(std::string_view& text) {
  if (text.empty()) {
    return std::nullopt;
  }
  const std::string_view line = text.substr(0, text.find('\n'));
  text.remove_prefix(std::min(text.size(), line.size() + 1));
  const std::size_t colon = line.find(": ");
  return colon == std::string_view::npos ? Line{line, {}} : Line{line.substr(0, colon), line.substr(colon + 2)};
}

std::string has(const std::string& name, std::string_view value) { return name + " has " + std::string(value); }

constexpr std::string_view kSameTensors = "; add the same tensors in the same order on every rank";
constexpr std::string_view kTable = "table ";
constexpr std::string_view kSamePolicy = "; give every rank the same policy and the same options";
constexpr std::string_view kSameVersion = "; run the same version of gradwire on every rank";
constexpr std::string_view kSameNodes =
    " (the node of each rank); write the same ranks_per_node in [tier] on every rank";

// The settings of a policy's line, which are separated by commas outside of brackets.
std::vector<std::string_view> settings_of(std::string_view value) {
  std::vector<std::string_view> settings;
  int depth = 0;
  std::size_t begin = 0;
  for (std::size_t i = 0; i < value.size(); ++i) {
    depth += value[i] == '(' ? 1 : value[i] == ')' ? -1 : 0;
    if (depth == 0 && value.substr(i, 2) == ", ") {
      settings.push_back(value.substr(begin, i - begin));
      begin = i + 2;
    }
  }
  settings.push_back(value.substr(begin));
  return settings;
}

// Leaves out of both texts the settings at the begin and the end that they share.
void drop_what_is_equal(std::string_view& mine, std::string_view& theirs) {
  std::vector<std::string_view> a = settings_of(mine);
  std::vector<std::string_view> b = settings_of(theirs);
  const auto from = std::mismatch(a.begin(), a.end(), b.begin(), b.end());
  a.erase(a.begin(), from.first);
  b.erase(b.begin(), from.second);
  while (!a.empty() && !b.empty() && a.back() == b.back()) {
    a.pop_back();
    b.pop_back();
  }
  const auto text = [](const std::vector<std::string_view>& settings) {
    return settings.empty()
               ? std::string_view()
               : std::string_view(settings.front().data(), settings.back().data() + settings.back().size());
  };
  mine = text(a);
  theirs = text(b);
}

std::string have(const std::string& my_name, std::string_view mine, const std::string& their_name,
                 std::string_view theirs) {
  if (mine.empty() || theirs.empty()) {
    return has((theirs.empty() ? my_name : their_name) + " alone", theirs.empty() ? mine : theirs);
  }
  return has(my_name, mine) + ", " + has(their_name, theirs);
}

struct Side {
  const std::string& name;
  std::string_view lines;  // from the first tensor on
};

// The first tensor, in the order of add, that the rank with more tensors has and the other lacks.
std::string missing_tensor(Side fewer, Side more) {
  std::optional<Line> one;
  std::optional<Line> other;
  do {
    one = take_line(fewer.lines);
    other = take_line(more.lines);
  } while (one && other && (!other->item.starts_with(kTensor) || one->value == other->value));
  if (!other || !other->item.starts_with(kTensor)) {
    return {};
  }
  return ": " + std::string(other->item) + " of " + more.name + ", " + std::string(other->value) + ", is missing on " +
         fewer.name;
}

}  // namespace

std::string Plan::describe() const {
  std::string text;
  add_line(text, "wire version", std::to_string(kWireVersion));
  add_line(text, "world size", std::to_string(options.world_size));
  add_line(text, "reduction", options.reduction == Reduction::sum ? "sum" : "mean");
  add_line(text, "checksum", options.checksum ? "on" : "off");
  add_line(text, std::string(kTensorCount), std::to_string(tensors.size()));
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const TensorInfo& info = tensors[i].info;
    add_line(text, std::string(kTensor) + std::to_string(i),
             text::quote(info.name) + ' ' + std::string(gradwire::to_string(info.dtype)) + " x " +
                 std::to_string(info.count) + ", ndim " + std::to_string(info.ndim) + registered(info));
  }
  add_line(text, "bucket bytes", std::to_string(bucket_bytes));
  add_line(text, "chunk bytes", std::to_string(host_chunk_bytes()) + (chunk_bytes ? " as asked" : ""));
  add_line(text, "deterministic", deterministic ? "true" : "false");
  std::vector<std::string> resolutions;
  for (const Bucket& bucket : buckets) {
    resolutions.push_back(resolved(bucket, *this));
  }
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const TensorPlan& tensor = tensors[i];
    add_line(text, "policy of tensor " + std::to_string(i) + ' ' + text::quote(tensor.info.name),
             resolutions[tensor.bucket] + ", error feedback " +
                 std::string(policy::to_string(tensor.policy.error_feedback)) + decayed(tensor.policy.decay) +
                 synchronised(tensor.policy.sync) + ", group " + std::to_string(tensor.group));
  }
  for (const Bucket& bucket : buckets) {
    std::string parts;
    for (const Bucket::Part& part : bucket.parts) {
      parts += ' ' + std::to_string(part.tensor);
    }
    add_line(text, "bucket " + std::to_string(bucket.id),
             std::string(gradwire::to_string(bucket.dtype)) + " x " + std::to_string(bucket.count) + ", " +
                 resolutions[bucket.id] + turn(bucket) + ", tensors" + parts);
  }
  add_line(text, "choice of codecs", is_auto() ? choosing(*this) : "none");
  add_line(text, "advice on the batch", batch ? advising(*this) : "none");
  for (const std::string& line : tables) {
    text += line + '\n';
  }
  return text;
}

std::string Plan::fingerprint() const { return fingerprint_of(describe()); }

std::string fingerprint_of(const std::string& text) {
  constexpr std::string_view kHex = "0123456789abcdef";
  const std::uint64_t hash = hash_of(text.data(), text.size(), 0);
  std::string digits;
  for (int shift = 60; shift >= 0; shift -= 4) {
    digits += kHex[(hash >> shift) & 15];
  }
  return digits;
}

std::string first_difference(const std::string& mine, int my_rank, const std::string& theirs, int their_rank) {
  return first_difference(mine, "rank " + std::to_string(my_rank), theirs, "rank " + std::to_string(their_rank));
}

std::string first_difference(const std::string& mine, const std::string& my_name, const std::string& theirs,
                             const std::string& their_name) {
  std::string_view my_text = mine;
  std::string_view their_text = theirs;
  while (true) {
    const std::optional<Line> my_line = take_line(my_text);
    const std::optional<Line> their_line = take_line(their_text);
    if (!my_line && !their_line) {
      return {};
    }
    const bool same_item = my_line && their_line && my_line->item == their_line->item;
    const bool my_table = my_line && my_line->item.starts_with(kTable);
    if (!same_item && (my_table || (their_line && their_line->item.starts_with(kTable)))) {
      return std::string((my_table ? my_line : their_line)->item) + " is on " + (my_table ? my_name : their_name) +
             " alone, not on " + (my_table ? their_name : my_name) +
             "; add the same tables in the same order on every rank";
    }
    if (!same_item) {
      return "the plans of " + my_name + " and " + their_name + " differ from \"" +
             std::string(my_line ? my_line->item : "end") + "\" and \"" +
             std::string(their_line ? their_line->item : "end") +
             "\" on; run the same version of gradwire with the same policy on every rank";
    }
    if (my_line->value == their_line->value) {
      continue;
    }
    if (my_line->item == kTensorCount) {
      const std::string counts = my_name + " has " + std::string(my_line->value) + " tensors, " + their_name + " has " +
                                 std::string(their_line->value);
      const Side me{my_name, my_text};
      const Side them{their_name, their_text};
      const bool fewer = my_line->value.size() != their_line->value.size()
                             ? my_line->value.size() < their_line->value.size()
                             : my_line->value < their_line->value;
      return counts + (fewer ? missing_tensor(me, them) : missing_tensor(them, me)) + std::string(kSameTensors);
    }
    const std::string_view fix = my_line->item.starts_with(kTensor) ? kSameTensors
                                 : my_line->item == kNodes          ? kSameNodes
                                 : my_line->item == kDeviceChunks   ? kSameVersion
                                                                    : kSamePolicy;
    std::string_view my_value = my_line->value;
    std::string_view their_value = their_line->value;
    if (fix == kSamePolicy) {
      drop_what_is_equal(my_value, their_value);
    }
    return std::string(my_line->item) + ": " + have(my_name, my_value, their_name, their_value) + std::string(fix);
  }
}

}  // namespace gradwire::plan
