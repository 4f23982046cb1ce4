#include "plan/memory_use.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <tuple>
#include <utility>
#include <vector>

#include "base/text.hpp"
#include "base/units.hpp"
#include "exchange/resolved_call.hpp"
#include "exchange/window.hpp"
#include "plan/copy_keepers.hpp"
#include "plan/residual_counts.hpp"
#include "policy/stage.hpp"
#include "policy/sync.hpp"
#include "wire/frame.hpp"

namespace gradwire::plan {
namespace {

// Whether the transport may sum a bucket by itself, for which it is copied whole unless the sum is in place.
bool may_sum_natively(const Plan& plan, const Bucket& bucket) {
  const std::uint64_t bytes = bucket.count * element_bytes(bucket.dtype);
  const bool in_call = plan.tiers->nodes() == 1 && bytes < exchange::kInCallBelowBytes;
  const bool has_dtype = bucket.dtype == DType::f32 || bucket.dtype == DType::f64;
  return plan.options.native_sums && !plan.deterministic && has_dtype &&
         (bytes < exchange::kNativeBelowBytes || in_call || !bucket.levels.empty());
}

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

// Counts the bytes of a bucket's frames: in its largest lane, in all lanes, and where packed ones are unpacked.
struct Frames {
  std::uint64_t lane = 0;
  std::uint64_t all = 0;
  std::uint64_t rooms = 0;
};

Frames largest(const Frames& a, const Frames& b) {
  return {std::max(a.lane, b.lane), std::max(a.all, b.all), std::max(a.rooms, b.rooms)};
}

// `seal`: bytes behind each frame.
Frames frames_of(const exchange::Resolved& resolved, std::uint64_t seal = 0) {
  if (resolved.schedule.lanes == 0) {
    return {};
  }
  // Later lanes have chunks of the same size, or fewer elements at the end.
  const exchange::LaneLoad load = exchange::load_of(
      resolved.schedule.make_lane(0),
      [&](const exchange::Instruction& instruction) -> std::uint64_t {
        if (instruction.opcode == exchange::Opcode::native_load) {
          return instruction.chunk.count * resolved.call.codecs.first.working_bytes() + seal;
        }
        return seal +
               (instruction.opcode == exchange::Opcode::native_ask || instruction.opcode == exchange::Opcode::weight
                    ? sizeof(double)
                    : resolved.call.codecs.of(instruction.hop).frame_bytes(instruction.chunk.count));
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

// Adds up the lanes of buckets: the most that the least lanes take, and all lanes.
struct Lanes {
  std::uint64_t least = 0;
  std::uint64_t all = 0;

  void add(std::uint64_t lane, std::uint64_t of_bucket) {
    least = std::max(least, exchange::kLeastLanes * lane);
    all += of_bucket;
  }
};

// Holds the use of a plan, and what its parts come from.
struct Account {
  MemoryUse use;
  std::map<exchange::ResidualPlace, std::uint64_t> room = {};    // bytes of the file of each, of one buffer
  std::vector<ResidualCounts> residuals;                         // by group
  std::vector<std::optional<ResidualDType>> dtypes;              // of residuals, by group; none: no error feedback
  std::map<exchange::ResidualPlace, std::uint64_t> places = {};  // bytes of residuals of each
  Lanes framed = {};                                             // frames of all buckets
  Lanes copied = {};           // copies of buckets that the transport may sum, each of which is a lane
  Lanes beside_copied = {};    // frames of the other buckets
  Lanes encrypted = {};        // encrypted copies of frames
  std::uint64_t rooms = 0;     // where packed frames are unpacked
  double sealed_of_frame = 0;  // bytes of an encrypted copy for each byte of a frame, at most

  // The window counts rooms and copies, too; the least lanes go beyond it. Buckets that the transport may sum all
  // travel as frames, or all as copies beside the frames of others.
  [[nodiscard]] std::uint64_t frames(std::uint64_t in_flight) const {
    const auto most = [&](std::uint64_t least, std::uint64_t all) {
      return std::min(all + rooms, std::max(least + rooms, in_flight));
    };
    return std::max(most(framed.least, framed.all),
                    most(beside_copied.least + std::min(copied.least, copied.all), beside_copied.all + copied.all));
  }
  // Each frame that is under way has an encrypted copy.
  [[nodiscard]] std::uint64_t sealed(std::uint64_t in_flight) const {
    const double of_window = std::ceil(static_cast<double>(in_flight) * sealed_of_frame);
    return std::min(encrypted.all, std::max(encrypted.least, static_cast<std::uint64_t>(of_window)));
  }
  void add_sealed(const Frames& frames, const Frames& sealed) {
    encrypted.add(sealed.lane, sealed.all);
    if (frames.lane > 0) {
      sealed_of_frame = std::max(sealed_of_frame, static_cast<double>(sealed.lane) / static_cast<double>(frames.lane));
    }
  }
};

std::uint64_t buffers_of(const Plan& plan) { return plan.options.undoable ? 2 : 1; }

bool copies_residuals(const Plan& plan) {
  return plan.options.undoable && plan.elastic.replicate > 0 && plan.options.world_size > 1;
}

// Counts the elements and the frames, which do not depend on how residuals are kept.
Account counted(const Plan& plan, int rank, std::size_t most_level) {
  // A model has few kinds of buckets, and a lane of many ranks many instructions.
  using Kind = std::tuple<std::size_t, std::uint64_t, DType, bool, Algorithm>;
  struct Needs {
    Frames frames;
    Frames sealed;                            // their encrypted copies
    std::vector<exchange::ResidualUse> uses;  // of each level or stage
    bool native = false;                      // the transport may sum it
  };
  std::map<Kind, Needs> kinds;
  Account account{.use = {}, .residuals = std::vector<ResidualCounts>(plan.groups.size()), .dtypes = {}};
  for (const Group& group : plan.groups) {
    account.dtypes.emplace_back(group.policy.residuals.dtype);
  }
  for (const Bucket& bucket : plan.buckets) {
    account.use.gradients += bucket.count * element_bytes(bucket.dtype);
    account.use.copies += copies_of(bucket, plan.options.undoable);
    if (plan.options.world_size == 1) {
      continue;
    }
    const auto [kind, fresh] =
        kinds.try_emplace({bucket.group, bucket.count, bucket.dtype, bucket.preconditioned, bucket.algorithm});
    auto& [frames, sealed, uses, native] = kind->second;
    for (const policy::Level& level : fresh ? ways_of(bucket, most_level) : std::vector<policy::Level>()) {
      const exchange::Resolved call = resolved(plan, bucket, level, rank);
      uses.push_back(call.call.residuals);
      frames = largest(frames, frames_of(call));
      if (plan.options.sealed) {
        sealed = largest(sealed, frames_of(call, wire::kSealBytes));
      }
      native = native || (level.algorithm == Algorithm::dense && may_sum_natively(plan, bucket));
    }
    ResidualCounts residuals;
    for (const exchange::ResidualUse& use : uses) {
      const ResidualCounts kept = counts_of(bucket, use);
      residuals.local.raise_to(kept.local);
      residuals.summed.raise_to(kept.summed);
    }
    if (const auto place = place_of(plan.groups[bucket.group].policy.residuals)) {
      std::uint64_t room = 0;
      for (const exchange::ResidualUse& use : uses) {
        room = std::max(room, room_of(bucket, use, *account.dtypes[bucket.group], place->memory));
      }
      account.room[*place] += room;
    }
    account.residuals[bucket.group].local += residuals.local;
    account.residuals[bucket.group].summed += residuals.summed;
    const std::uint64_t copy = bucket.count * element_bytes(bucket.dtype);
    account.framed.add(frames.lane, frames.all);
    native ? account.copied.add(copy, copy) : account.beside_copied.add(frames.lane, frames.all);
    account.rooms = std::max(account.rooms, frames.rooms);
    account.add_sealed(frames, sealed);
  }
  account.use.frames = account.frames(plan.in_flight_bytes);
  account.use.sealed = account.sealed(plan.in_flight_bytes);
  return account;
}

// Returns the bytes of a copy of residuals for another rank. Packed ones are counted as if packing saved nothing.
std::uint64_t copy_bytes(const Plan& plan, const Account& account) {
  std::uint64_t elements = 0;
  bool any_f32 = false;
  for (std::size_t group = 0; group < plan.groups.size(); ++group) {
    const std::uint64_t count = account.residuals[group].local.elements + account.residuals[group].summed.elements;
    if (account.dtypes[group]) {
      elements += count;
      any_f32 = any_f32 || (count > 0 && account.dtypes[group] == ResidualDType::f32);
    }
  }
  return elements * (plan.elastic.replicate_exact && any_f32 ? sizeof(float) : sizeof(std::uint16_t));
}

// Fills in the bytes of residuals. `first`: the account of rank 0, whose copy no other rank's exceeds.
void add_residuals(const Plan& plan, int rank, const Account& first, Account& account) {
  MemoryUse& use = account.use;
  const std::uint64_t buffers = buffers_of(plan);
  std::map<exchange::ResidualPlace, std::uint64_t> one_each;  // bytes of one buffer of each place
  std::uint64_t snapshot = 0;                                 // what a copy is made of, in memory
  for (std::size_t group = 0; group < plan.groups.size(); ++group) {
    const std::uint64_t local = account.residuals[group].local.bytes(account.dtypes[group]);
    const std::uint64_t summed = account.residuals[group].summed.bytes(account.dtypes[group]);
    use.local += local;
    use.summed += summed;
    if (const auto place = place_of(plan.groups[group].policy.residuals); place && local + summed > 0) {
      account.places[*place] += buffers * (local + summed);
      one_each[*place] += local + summed;
    } else {
      snapshot += local + summed;
    }
  }
  use.second = (buffers - 1) * (use.local + use.summed);
  for (const auto& [place, bytes] : account.places) {
    use.in_files += bytes - std::min(bytes, place.memory);
    snapshot += std::min(bytes + one_each[place], place.memory) - std::min(bytes, place.memory);
  }
  if (copies_residuals(plan)) {
    // The rank's own copy is encoded from a snapshot and waits to be sent. Of each rank that it keeps a copy for, it
    // holds the last whole one and the next one, which is moved as it grows.
    const auto kept_for = static_cast<std::uint64_t>(
        std::ranges::count(copy_keepers(static_cast<std::size_t>(plan.options.world_size), plan.options.nodes), rank));
    const std::uint64_t own = copy_bytes(plan, account);
    use.replicas = (own > 0 ? snapshot + 2 * own : 0) + 3 * kept_for * copy_bytes(plan, first);
  }
}

Account account_of(const Plan& plan, int rank, std::size_t most_level) {
  Account account = counted(plan, rank, most_level);
  const Account first = rank == 0 || !copies_residuals(plan) ? account : counted(plan, 0, most_level);
  add_residuals(plan, rank, first, account);
  return account;
}

// Returns the use of rank 0 if the residuals of a group had another dtype, or it had no error feedback.
MemoryUse use_with(const Plan& plan, const Account& account, std::size_t group, std::optional<ResidualDType> dtype) {
  Account other{.use = {.copies = account.use.copies, .frames = account.use.frames, .sealed = account.use.sealed},
                .residuals = account.residuals,
                .dtypes = account.dtypes};
  other.dtypes[group] = dtype;
  const Account first = other;
  add_residuals(plan, 0, first, other);
  return other.use;
}

// Returns what each choice saves of the memory of rank 0, the largest saving first: int8 without error feedback in a
// group whose codec needs residuals, narrower residuals, and half of the bytes in flight. What lies in a file takes no
// memory, so less of it saves none.
std::vector<Saving> savings_of(const Plan& plan, const Account& account) {
  std::vector<Saving> savings;
  const auto add = [&](std::string choice, std::uint64_t bytes) {
    if (bytes < account.use.session()) {
      savings.push_back({std::move(choice), account.use.session() - bytes});
    }
  };
  for (std::size_t group = 0; group < plan.groups.size(); ++group) {
    const std::string& name = plan.groups[group].name;
    add(name + ": int8 without error feedback", use_with(plan, account, group, std::nullopt).session());
    const ResidualDType dtype = plan.groups[group].policy.residuals.dtype;
    if (plan.options.packs_frames && dtype == ResidualDType::f32) {
      add(name + R"(: residuals = { dtype = "bf16" })", use_with(plan, account, group, ResidualDType::bf16).session());
    }
    if (plan.options.packs_frames && dtype != ResidualDType::int8) {
      add(name + R"(: residuals = { dtype = "int8" })", use_with(plan, account, group, ResidualDType::int8).session());
    }
  }
  const std::uint64_t in_flight = plan.in_flight_bytes / 2;
  add("[bucket] in_flight = \"" + format_bytes(in_flight) + "\"", account.use.session() -
                                                                      (account.use.frames - account.frames(in_flight)) -
                                                                      (account.use.sealed - account.sealed(in_flight)));
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

std::map<exchange::ResidualPlace, std::uint64_t> disk_room_of(const Plan& plan, int rank) {
  if (std::none_of(plan.groups.begin(), plan.groups.end(),
                   [](const Group& group) { return place_of(group.policy.residuals).has_value(); })) {
    return {};
  }
  std::map<exchange::ResidualPlace, std::uint64_t> room = counted(plan, rank, plan.most_level).room;
  for (auto& [place, bytes] : room) {
    bytes *= buffers_of(plan) + (plan.options.undoable ? 1 : 0);  // snapshots, or what the next world takes over
  }
  return room;
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
  add("copies for other ranks, [elastic] replicate", use.replicas);
  add(plan.options.native_sums ? "frames, or buckets that the transport sums, at most" : "frames, at most", use.frames);
  add("encrypted copies of frames, at most", use.sealed);
  rows.push_back({"the session, in all", format_bytes(use.session())});
  std::string text = '\n' + text::table(rows, "lr");
  for (const Saving& saving : savings_of(plan, account)) {
    text += "  " + saving.choice + " saves " + format_bytes(saving.bytes) + '\n';
  }
  return text;
}

}  // namespace gradwire::plan
