#include "plan/memory_use.hpp"

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>
#include <vector>

#include "base/text.hpp"
#include "base/units.hpp"
#include "exchange/resolved_call.hpp"
#include "exchange/window.hpp"
#include "policy/stage.hpp"
#include "policy/sync.hpp"

namespace gradwire::plan {
namespace {

exchange::Resolved resolved(const Plan& plan, const Bucket& bucket, const policy::Level& level, int rank) {
  return exchange::resolve({.algorithm = level.algorithm,
                            .codec = level.stage.codec,
                            .second_hop = level.stage.second_hop,
                            .intra = level.stage.intra,
                            .dtype = bucket.dtype,
                            .count = bucket.count,
                            .feedback = level.stage.error_feedback,
                            .preconditioned = bucket.preconditioned,
                            .chunk_bytes = plan.host_chunk_bytes()},
                           {rank, plan.options.world_size, plan.tiers});
}

std::vector<policy::Level> ways_of(const Bucket& bucket, std::size_t most_level) {
  if (!bucket.levels.empty()) {
    const std::span<const policy::Level> levels = levels_up_to(bucket, most_level);
    return {levels.begin(), levels.end()};
  }
  std::vector<policy::Level> levels;
  for (const policy::Stage& stage : bucket.stages) {
    levels.push_back({bucket.algorithm, stage});
  }
  return levels;
}

struct ResidualBytes {
  std::uint64_t local = 0;
  std::uint64_t summed = 0;
};

// Returns the bytes of residuals that take `bytes_each`.
ResidualBytes bytes_of(const exchange::ResidualUse& use, std::uint64_t bytes_each) {
  ResidualBytes residuals{.local = use.local.count * bytes_each, .summed = use.owned.count * bytes_each};
  for (const exchange::ResidualUse::Range& range : use.summed) {
    residuals.summed += range.count * bytes_each;
  }
  for (const exchange::ResidualUse::Part& part : use.parts) {
    residuals.summed += (part.summed.count + part.owned.count) * bytes_each;
  }
  return residuals;
}

// Counts the bytes of a bucket's frames: in its largest lane, in all lanes, and where packed ones are unpacked.
struct Frames {
  std::uint64_t lane = 0;
  std::uint64_t all = 0;
  std::uint64_t rooms = 0;
};

Frames frames_of(const exchange::Resolved& resolved) {
  if (resolved.schedule.lanes == 0) {
    return {};
  }
  // Later lanes have chunks of the same size, or fewer elements at the end.
  const exchange::LaneLoad load = exchange::load_of(
      resolved.schedule.make_lane(0),
      [&](const exchange::Instruction& instruction) -> std::uint64_t {
        if (instruction.opcode == exchange::Opcode::native_load) {
          return instruction.chunk.count * resolved.call.codecs.first.working_bytes();
        }
        return instruction.opcode == exchange::Opcode::native_ask || instruction.opcode == exchange::Opcode::weight
                   ? sizeof(double)
                   : resolved.call.codecs.of(instruction.hop).frame_bytes(instruction.chunk.count);
      },
      [&](exchange::Hop hop, std::uint64_t count) { return resolved.call.codecs.of(hop).room_bytes(count); });
  return {load.memory, load.memory * resolved.schedule.lanes, load.rooms};
}

// Returns the bytes that a bucket of a sync mode keeps: results that are late, or the parameters as they were last
// synchronised.
std::uint64_t copies_of(const Bucket& bucket, bool undoable) {
  const std::uint64_t bytes = bucket.count * element_bytes(bucket.dtype);
  const std::uint64_t inputs = undoable ? 2 : 1;  // what a late sum was made of, until it counts
  switch (bucket.sync.mode) {
    case Sync::Mode::async: return (std::uint64_t{bucket.sync.staleness} + 1) * bytes * inputs;
    case Sync::Mode::every:
      if (policy::is_step(bucket.sync)) {
        return 0;
      }
      return bucket.sync.outer ? (2 + inputs) * bytes : bucket.parameters * bytes * inputs;
    case Sync::Mode::step:
    case Sync::Mode::rows: return 0;
  }
  return 0;
}

// Describes one choice that takes less memory.
struct Saving {
  std::string choice;
  std::uint64_t bytes = 0;
};

// Holds the use of a plan, and what its parts come from.
struct Account {
  MemoryUse use;
  std::vector<std::uint64_t> residuals;                          // by group, second buffers with them
  std::map<exchange::ResidualPlace, std::uint64_t> places = {};  // bytes of residuals of each
  std::uint64_t least_frames = 0;
  std::uint64_t all_frames = 0;
  std::uint64_t rooms = 0;  // where packed frames are unpacked

  // The window counts rooms, too; the least lanes go beyond it.
  [[nodiscard]] std::uint64_t frames(std::uint64_t in_flight) const {
    return std::min(all_frames + rooms, std::max(least_frames + rooms, in_flight));
  }
};

Account account_of(const Plan& plan, int rank, std::size_t most_level) {
  // A model has few kinds of buckets, and a lane of many ranks many instructions.
  using Kind = std::tuple<std::size_t, std::uint64_t, DType, bool, Algorithm>;
  std::map<Kind, std::pair<ResidualBytes, Frames>> kinds;
  Account account{.use = {}, .residuals = std::vector<std::uint64_t>(plan.groups.size())};
  MemoryUse& use = account.use;
  const std::uint64_t buffers = plan.options.undoable ? 2 : 1;
  for (const Bucket& bucket : plan.buckets) {
    use.gradients += bucket.count * element_bytes(bucket.dtype);
    use.copies += copies_of(bucket, plan.options.undoable);
    if (plan.options.world_size == 1) {
      continue;
    }
    const auto [kind, fresh] =
        kinds.try_emplace({bucket.group, bucket.count, bucket.dtype, bucket.preconditioned, bucket.algorithm});
    auto& [residuals, frames] = kind->second;
    for (const policy::Level& level : fresh ? ways_of(bucket, most_level) : std::vector<policy::Level>()) {
      const exchange::Resolved call = resolved(plan, bucket, level, rank);
      const ResidualBytes kept =
          bytes_of(call.call.residuals, element_bytes(plan.groups[bucket.group].policy.residuals.dtype));
      residuals = {std::max(residuals.local, kept.local), std::max(residuals.summed, kept.summed)};
      const Frames held = frames_of(call);
      frames = {std::max(frames.lane, held.lane), std::max(frames.all, held.all), std::max(frames.rooms, held.rooms)};
    }
    use.local += residuals.local;
    use.summed += residuals.summed;
    const std::uint64_t kept = buffers * (residuals.local + residuals.summed);
    account.residuals[bucket.group] += kept;
    if (const auto place = place_of(plan.groups[bucket.group].policy.residuals); place && kept > 0) {
      account.places[*place] += kept;
    }
    account.least_frames = std::max(account.least_frames, exchange::kLeastLanes * frames.lane);
    account.all_frames += frames.all;
    account.rooms = std::max(account.rooms, frames.rooms);
  }
  use.second = (buffers - 1) * (use.local + use.summed);
  for (const auto& [place, bytes] : account.places) {
    use.in_files += bytes - std::min(bytes, place.memory);
  }
  use.frames = account.frames(plan.in_flight_bytes);
  return account;
}

// Returns what each choice saves, the largest saving first: int8 without error feedback in a group whose codec needs
// residuals, residuals in bf16 where they are f32, and half of the bytes in flight.
std::vector<Saving> savings_of(const Plan& plan, const Account& account) {
  std::vector<Saving> savings;
  for (std::size_t group = 0; group < plan.groups.size(); ++group) {
    if (account.residuals[group] > 0) {
      savings.push_back({plan.groups[group].name + ": int8 without error feedback", account.residuals[group]});
      if (plan.options.packs_frames && plan.groups[group].policy.residuals.dtype == DType::f32) {
        savings.push_back(
            {plan.groups[group].name + R"(: residuals = { dtype = "bf16" })", account.residuals[group] / 2});
      }
    }
  }
  const std::uint64_t in_flight = plan.in_flight_bytes / 2;
  if (const std::uint64_t frames = account.frames(in_flight); frames < account.use.frames) {
    savings.push_back({"[bucket] in_flight = \"" + format_bytes(in_flight) + "\"", account.use.frames - frames});
  }
  std::stable_sort(savings.begin(), savings.end(), [](const Saving& a, const Saving& b) { return a.bytes > b.bytes; });
  return savings;
}

}  // namespace

MemoryUse memory_of(const Plan& plan, int rank) { return memory_of(plan, rank, plan.most_level); }

MemoryUse memory_of(const Plan& plan, int rank, std::size_t most_level) {
  return account_of(plan, rank, most_level).use;
}

std::optional<std::size_t> level_that_fits(const Plan& plan, int rank,
                                           const std::function<bool(const MemoryUse&)>& fits) {
  std::size_t levels = 0;
  for (const Bucket& bucket : plan.buckets) {
    levels = std::max(levels, bucket.levels.size());
  }
  if (levels == 0) {
    return std::nullopt;
  }
  std::size_t last = std::min(plan.most_level, levels - 1);
  while (last > 0 && !fits(account_of(plan, rank, last).use)) {
    --last;
  }
  return last;
}

std::span<const policy::Level> levels_up_to(const Bucket& bucket, std::size_t most_level) {
  const std::span<const policy::Level> all(bucket.levels);
  return all.empty() ? all : all.first(std::min(most_level, all.size() - 1) + 1);
}

std::string codecs_above(const Plan& plan, std::size_t most_level) {
  std::vector<std::string> codecs;
  for (const Bucket& bucket : plan.buckets) {
    const std::size_t last = std::min(plan.most_level, std::max<std::size_t>(1, bucket.levels.size()) - 1);
    for (std::size_t level = most_level; level < last; ++level) {
      std::string codec = bucket.levels[level + 1].stage.codec.to_string();
      if (std::find(codecs.begin(), codecs.end(), codec) == codecs.end()) {
        codecs.push_back(std::move(codec));
      }
    }
  }
  std::string names;
  for (const std::string& codec : codecs) {
    names += (names.empty() ? "" : ", ") + codec;
  }
  return names;
}

std::map<exchange::ResidualPlace, std::uint64_t> residuals_by_place(const Plan& plan, int rank) {
  return account_of(plan, rank, plan.most_level).places;
}

std::string explain_memory(const Plan& plan) {
  const Account account = account_of(plan, 0, plan.most_level);
  const MemoryUse& use = account.use;
  std::vector<std::vector<std::string>> rows{{"memory of a rank", "bytes"}};
  const auto add = [&](const std::string& purpose, std::uint64_t bytes) {
    if (bytes > 0) {
      rows.push_back({purpose, format_bytes(bytes)});
    }
  };
  add("gradients, the caller's", use.gradients);
  add("residuals of its own values", use.local);
  add("residuals of its sums", use.summed);
  add("second buffers of residuals", use.second);
  for (const auto& [place, bytes] : account.places) {
    add("of these in a file in " + place.folder, bytes - std::min(bytes, place.memory));
  }
  add("copies of sync modes", use.copies);
  add("frames, at most", use.frames);
  rows.push_back({"the session, in all", format_bytes(use.session())});
  std::string text = '\n' + text::table(rows, "lr");
  for (const Saving& saving : savings_of(plan, account)) {
    text += "  " + saving.choice + " saves " + format_bytes(saving.bytes) + '\n';
  }
  return text;
}

}  // namespace gradwire::plan
