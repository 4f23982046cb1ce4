// The policies under which tests play jobs over Processes, and the options of each.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "elastic_job.hpp"

namespace gradwire::test {

/// A policy with its options. The policies include: weights or none, scales, small tensors (which would be bf16), local
/// steps (some follow others, and a skipped step delays one), and late gradients.
struct Kind {
  const char* policy;
  bool weighted = false;
  bool scaled = false;
  std::optional<std::uint64_t> skips = {};
  Nonfinite nonfinite = Nonfinite::automatic;
  bool broadcasts = false;
  std::optional<std::uint64_t> flushes = {};

  [[nodiscard]] Plan plan() const {
    return {.policy = policy,
            .weighted = weighted,
            .scaled = scaled,
            .skips = skips,
            .nonfinite = nonfinite,
            .broadcasts = broadcasts,
            .flushes = flushes};
  }
};
inline const Kind kPolicies[] = {
    {"[[rule]]\nmatch = \"*\"\ncodec = \"exact\"\n", false},
    {"[[rule]]\nmatch = \"*\"\ncodec = \"int8\"\n", true},
    {"[[rule]]\nmatch = \"*\"\ncodec = \"int4\"\n", false},
    {"[[rule]]\nmatch = \"*\"\ncodec = \"int4\"\nresiduals = { dtype = \"bf16\" }\n", true},
    {"[[rule]]\nmatch = \"*\"\ncodec = \"topk(0.05)+int8\"\nresiduals = { dtype = \"int8\" }\n", false, true},
    {"[[rule]]\nmatch = \"*\"\ncodec = \"topk(0.05)+int8\"\nalgorithm = \"one_shot\"\ndecay = 0.8\n", false},
    {"[[rule]]\nmatch = \"*\"\nsync = { every = 2 }\n", true},
    {.policy = "[[rule]]\nmatch = \"*\"\ncodec = \"int4\"\nsync = { every = 2, from_step = 2 }\n", .skips = 1},
    {.policy = "[[rule]]\nmatch = \"*\"\ncodec = \"int8\"\nsync = { every = 16, offset = 13, outer = {} }\n"},
    {.policy =
         "[[rule]]\nmatch = \"*\"\ncodec = \"topk(0.05)+int8\"\n"
         "sync = { every = 16, offset = 13, stagger = true, outer = { lr = 0.7, momentum = 0.9 }, from_step = 2 }\n"
         "[bucket]\nbytes = \"24KiB\"\n"},
    {.policy = "[[rule]]\nmatch = \"*\"\ncodec = \"int4\"\nsync = { async = true, staleness = 2 }\n",
     .weighted = true,
     .flushes = 3},
    {.policy = "[[rule]]\nmatch = \"*\"\ncodec = \"topk(0.05)+int8\"\n"
               "sync = { async = true, staleness = 2, from_step = 1 }\n[bucket]\nbytes = \"24KiB\"\n",
     .skips = 3,
     .nonfinite = Nonfinite::skip},
    {.policy = "[defaults]\ncodec = \"int4\"\n[[rule]]\nmatch = \"t0\"\ncodec = \"int8\"\nerror_feedback = "
               "\"on\"\nresiduals = { dtype = \"bf16\" }\n"
               "sync = { async = true, staleness = 3 }\n",
     .broadcasts = true},
};
inline constexpr std::size_t kFirstLate = 10;                 // the policies before it reduce everything in its step
inline const std::span<const Kind> kUnderStep(kPolicies, 6);  // no local steps or late results

}  // namespace gradwire::test
