// The tables of a policy that concern the job as a whole: [elastic], [batch], [device], [memory] and [security]; and
// how residuals are kept.
#include <charconv>

#include "base/secret_file.hpp"
#include "base/units.hpp"
#include "codec/codec.hpp"
#include "codec/packed_pieces.hpp"
#include "memory/store_folder.hpp"
#include "policy/bounds.hpp"
#include "policy/policy_values.hpp"

namespace gradwire::policy {

std::uint32_t PolicyValues::read_replicate(const toml::node& node) const {
  const std::string text = read_string(node, "replicate", "a string such as \"10 steps\"");
  std::uint32_t steps = 0;
  const char* end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, steps);
  const std::string_view unit(rest, static_cast<std::size_t>(end - rest));
  if (error != std::errc() || steps == 0 || (unit != " steps" && unit != " step")) {
    fail(node, "replicate = \"" + text +
                   "\" is no number of steps; write \"10 steps\": after so many another rank gets a " +
                   "copy of each rank's residuals");
  }
  return steps;
}

double PolicyValues::read_expel_slower_than(const toml::node& node) const {
  const double factor = node.value_or(0.0);
  if (!node.is_number()) {
    fail_type(node, "expel_slower_than", "a number such as 3");
  }
  if (!(factor >= kLeastSlower && factor <= kMostSlower)) {
    fail(node,
         "expel_slower_than = " + format_number(factor, 3) +
             " is not from 1.5 to 1000; write how many times as long steps take because of a rank until it must go, "
             "such as 3");
  }
  return factor;
}

bool PolicyValues::read_save_as(const toml::node& node) const {
  const bool packed = read_choice(node, "save_as", {"exact", "exact+zstd"}) == 1;
  if (packed) {
    read_parsed(node, [] {
      codec::require_packing();
      return true;
    });
  }
  return packed;
}

Policy::Elastic PolicyValues::read_elastic(const toml::table& table) const {
  Policy::Elastic elastic;
  read_table(
      table, "in [elastic]",
      {{"suspect",
        [&](const toml::node& node) {
          const std::string text = read_string(node, "suspect", "a string such as \"5s\"");
          elastic.suspect = std::chrono::duration_cast<std::chrono::milliseconds>(
              read_parsed(node, [&] { return parse_duration(text); }));
          if (elastic.suspect < kLeastSuspect || elastic.suspect > kMostSuspect) {
            fail(node, "suspect = \"" + text + "\" is not from 1s to 10min; write how long a rank may give no " +
                           "sign of life, such as \"5s\"");
          }
        }},
       {"replicate", [&](const toml::node& node) { elastic.replicate = read_replicate(node); }},
       {"replicate_as",
        [&](const toml::node& node) {
          constexpr std::string_view kPacked = "+zstd";
          std::string text = read_string(node, "replicate_as", R"("bf16" or "exact")");
          const std::string given = text;
          elastic.replicate_packed = text.ends_with(kPacked);
          if (elastic.replicate_packed) {
            text.resize(text.size() - kPacked.size());
            static_cast<void>(  // fails without libzstd
                read_parsed(node, [] { return codec::Codec(CodecSpec(codec::kPackedId), DType::f32); }));
          }
          if (text != "bf16" && text != "exact") {
            fail(node, "unknown replicate_as \"" + given + R"("; write "bf16" or "exact", with or without "+zstd")");
          }
          elastic.replicate_exact = text == "exact";
        }},
       {"min_ranks",
        [&](const toml::node& node) {
          elastic.min_ranks = read_uint32(node, "min_ranks", "an integer such as 2", 1, kMostRanks,
                                          "the fewest ranks that go on, 1 to " + std::to_string(kMostRanks));
        }},
       {"expel_slower_than", [&](const toml::node& node) { elastic.expel_slower_than = read_expel_slower_than(node); }},
       {"trust_resets", [&](const toml::node& node) { elastic.trust_resets = read_bool(node, "trust_resets"); }},
       {"spares", [&](const toml::node& node) {
          elastic.spares = read_uint32(
              node, "spares", "an integer such as 1", 0, kMostRanks,
              "how many processes wait to take the places of ranks that end, 0 to " + std::to_string(kMostRanks));
        }}});
  return elastic;
}

Policy::Memory PolicyValues::read_memory(const toml::table& table) const {
  Policy::Memory memory;
  using HugePages = Policy::Memory::HugePages;
  const auto read_time = [this](const toml::node& node, std::string_view key) {
    const std::string text = read_string(node, key, "a string such as \"30s\"");
    const auto time =
        std::chrono::duration_cast<std::chrono::milliseconds>(read_parsed(node, [&] { return parse_duration(text); }));
    if (time < kLeastMemoryTime || time > kMostMemoryTime) {
      fail(node, std::string(key) + " = \"" + text + "\" is not from 1ms to 60min; write such as \"30s\"");
    }
    return time;
  };
  read_table(
      table, "in [memory]",
      {{"device_residuals",
        [&](const toml::node& node) {
          memory.device_residuals = read_bytes(node, "device_residuals", 0, kMostMemory);
        }},
       {"bind",
        [&](const toml::node& node) {
          memory.bind = read_choice(node, "bind", {"auto", "off"}) == 0;
        }},
       {"limit", [&](const toml::node& node) { memory.limit = read_bytes(node, "limit", kLeastLimit, kMostMemory); }},
       {"huge_pages",
        [&](const toml::node& node) {
          constexpr HugePages kPages[] = {HugePages::madvise, HugePages::hugetlbfs, HugePages::off};
          memory.huge_pages = kPages[read_choice(node, "huge_pages", {"madvise", "hugetlbfs", "off"})];
        }},
       {"merge",
        [&](const toml::node& node) {
          memory.merges_lazily = read_choice(node, "merge", {"lazy", "at_once"}) == 0;
        }},
       {"trim_above",
        [&](const toml::node& node) { memory.trim_above = read_bytes(node, "trim_above", 0, kMostMemory); }},
       {"trim_after", [&](const toml::node& node) { memory.trim_after = read_time(node, "trim_after"); }},
       {"compact_free", [&](const toml::node& node) { memory.compact_free = read_share(node, "compact_free", "60%"); }},
       {"compact_failures",
        [&](const toml::node& node) {
          memory.compact_failures = read_uint32(node, "compact_failures", "an integer such as 3", 1, 1000,
                                                "refused requests in a row, 1 to 1000");
        }},
       {"compact_every", [&](const toml::node& node) { memory.compact_every = read_time(node, "compact_every"); }}});
  return memory;
}

Residuals PolicyValues::read_residuals(const toml::node& node) const {
  if (!node.is_table()) {
    fail_type(node, "residuals", "a table such as { dtype = \"bf16\" }");
  }
  Residuals residuals;
  bool bounded = false;
  read_table(*node.as_table(), "in residuals",
             {{"dtype",
               [&](const toml::node& n) {
                 if (n.value_or(std::string_view()) == "int8") {
                   fail(n,
                        "residuals in int8 are not supported, since their bits would depend on how tensors are fused "
                        "into buckets; write \"bf16\"");
                 }
                 residuals.dtype = read_choice(n, "dtype", {"f32", "bf16"}) == 0 ? DType::f32 : DType::bf16;
               }},
              {"store",
               [&](const toml::node& n) {
                 residuals.store = read_string(n, "store", "a string such as \"file:/scratch\"");
                 if (!memory::store_folder(residuals.store)) {
                   fail(n, "store \"" + residuals.store + "\"; write \"file:DIR\", the folder of a scratch file");
                 }
               }},
              {"memory", [&](const toml::node& n) {
                 residuals.memory = read_bytes(n, "memory", kLeastStoreMemory, kMostMemory);
                 bounded = true;
               }}});
  if (bounded == residuals.store.empty()) {
    fail(node, std::string(bounded ? "memory without store" : "store without memory") +
                   " in residuals; write both, as in { store = \"file:DIR\", memory = \"1GiB\" }");
  }
  return residuals;
}

Policy::Security PolicyValues::read_job_security(const toml::table& table) const {
  Policy::Security security;
  read_table(table, "in [security]",
             {{"key",
               [&](const toml::node& node) {
                 security.key = read_string(node, "key", R"(the path of a key file, such as "file:/home/me/job.key")");
                 static_cast<void>(read_parsed(node, [&] { return secret_path(security.key, "key"); }));
               }},
              {"lock_memory", [&](const toml::node& node) { security.lock_memory = read_bool(node, "lock_memory"); }},
              {"no_dump", [&](const toml::node& node) { security.no_dump = read_bool(node, "no_dump"); }}});
  return security;
}

Policy::Batch PolicyValues::read_batch(const toml::table& table) const {
  Policy::Batch batch;
  SourceLocation most = place_of(table.source());
  const auto read_count = [this](const toml::node& node, std::string_view key) {
    return read_uint32(node, key, "an integer such as 8", 1, kMaxAccumulation,
                       "micro-steps to each reduction, 1 to " + std::to_string(kMaxAccumulation));
  };
  read_table(table, "in [batch]",
             {{"target_exposed",
               [&](const toml::node& node) {
                 batch.target_exposed = read_share(node, "target_exposed", "10%");
                 if (batch.target_exposed == 0) {
                   fail(node, "target_exposed is 0, which no batch reaches; write a share above 0, such as \"10%\"");
                 }
               }},
              {"min_accumulation",
               [&](const toml::node& node) { batch.min_accumulation = read_count(node, "min_accumulation"); }},
              {"max_accumulation",
               [&](const toml::node& node) {
                 batch.max_accumulation = read_count(node, "max_accumulation");
                 most = place_of(node.source());
               }},
              {"scaling", [&](const toml::node& node) {
                 const bool linear = read_choice(node, "scaling", {"linear", "sqrt"}) == 0;
                 batch.scaling = linear ? BatchScaling::linear : BatchScaling::square_root;
               }}});
  if (batch.min_accumulation > batch.max_accumulation) {
    fail(most, contradiction(batch));
  }
  return batch;
}

Policy::Device PolicyValues::read_device(const toml::table& table) const {
  Policy::Device device;
  read_table(
      table, "in [device]",
      {{"blocks",
        [&](const toml::node& node) {
          device.blocks =
              read_uint32(node, "blocks", "an integer such as 64", 1, kMostBlocks,
                          "the most blocks of 256 threads of each kernel, 1 to " + std::to_string(kMostBlocks));
        }},
       {"join", [&](const toml::node& node) { device.join_bytes = read_bytes(node, "join", 0, kMostJoinBytes); }},
       {"priority", [&](const toml::node& node) {
          device.high_priority = read_choice(node, "priority", {"high", "normal"}) == 0;
        }}});
  return device;
}

}  // namespace gradwire::policy
