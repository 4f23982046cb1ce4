// The errors that the header of sessions promises, each with the call that gives it.
#include <array>
#include <filesystem>
#include <limits>
#include <span>
#include <sstream>
#include <string>

#include "gradwire/session.hpp"
#include "gradwire/table.hpp"
#include "tests/support/scratch_folder.hpp"
#include "tests/support_matrix/feature_plays.hpp"
#include "tests/support_matrix/small_jobs.hpp"

namespace gradwire::support {
namespace {

// Makes a session of one rank, with a tensor "w".
void alone(const std::string& policy, const std::function<void(Rank&, TensorId)>& body,
           const SessionOptions& options = {}, Place place = Place::host) {
  on_session(
      place, policy, [&](Rank& rank) { body(rank, rank.session.add("w", rank.gradient_view())); }, options, 1);
}

// Makes a session of one rank that other processes may join, after share().
void joinable(const std::function<void(Rank&)>& body) {
  on_processes(make_inproc_processes(1, true), [&](const std::shared_ptr<Processes>& processes) {
    Rank rank(0, [&](std::shared_ptr<test::HostDevice>& device) {
      return session_over(Place::processes, processes, Policy(), {}, device);
    });
    rank.session.add("w", rank.gradient_view());
    static_cast<void>(rank.session.share(rank.view_of(rank.parameter)));
    body(rank);
  });
}

// Makes a session of one rank with a table of 10 rows of 2 elements.
void with_table(const std::function<void(Rank&, TableId)>& body) {
  alone(with("int8"), [&](Rank& rank, TensorId) {
    body(rank, rank.session.add_table({.name = "t", .rows = 10, .width = 2, .gradient_codec = "bf16"}));
  });
}

void add_table_as_before() {
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
  alone(with("int8"),
        [](Rank& rank, TensorId) { rank.session.add_table(TableOptions{.rows = 10, .width = 2, .staleness = 1}); });
#pragma GCC diagnostic pop
}

constexpr std::string_view kAddRefuses =
    "Error(invalid_argument) for a parameter or state of another count or dtype, for state without a parameter, and "
    "for "
    "a scale that is not in the memory that the session works on.";
constexpr std::string_view kShare = "broadcast(), reserve(), restore(), load(), link() are Error(invalid_argument).";
constexpr std::string_view kWait =
    "Error(invalid_argument) while a tensor that must come before is not ready on this rank: of all tensors in steps "
    "in "
    "which ranks look for NaN first (Nonfinite::skip, flush(), the step before local steps begin); and where the "
    "tensor's sync mode brings its result with finish().";
constexpr std::string_view kAddTable = "Error(invalid_argument) for options that make no sense.";
constexpr std::string_view kAddTableAsBefore =
    "Error(invalid_argument) for what is for a Table alone: staleness, cache_bytes, read_own_writes;";
constexpr std::string_view kAddTableUnsupported =
    "Error(unsupported) over device memory, and for codecs other than exact, bf16 and int8.";
constexpr std::string_view kCheckpoint =
    "Error(invalid_argument) where the directory holds checkpoints of later steps that restore() has not seen, "
    "Error(unsupported) over device memory.";
constexpr std::string_view kNote =
    "Error(invalid_argument) where the name is not 1 to 40 letters, digits, '_', '.' and '-', or is the 17th of the "
    "session.";
constexpr std::string_view kPull =
    "Error(invalid_argument), which harms nobody, for an id outside the table, a span of another size or a step that "
    "is "
    "under way.";
constexpr std::string_view kPush =
    "Error(invalid_argument) as in pull(), and for NaN or Inf, also once gradient_codec has rounded it;";

constexpr Promise kPromisesOfSessions[] = {
    {"session.hpp", "Session(processes)", "Error(invalid_argument) where another session has used `processes`.",
     kInvalid, "serve, or served, another session",
     [] {
       const auto processes = make_inproc_processes(1).front();
       const Session first(processes, Policy());
       const Session second(processes, Policy());
     }},
    {"session.hpp", "add()",
     "Error(invalid_argument) that names both where it overlaps memory of another tensor (tied weights are added "
     "once).",
     kInvalid, "the gradient of \"v\" overlaps the gradient of \"w\"",
     [] { alone(with("int8"), [](Rank& rank, TensorId) { rank.session.add("v", rank.gradient_view()); }); }},
    {"session.hpp", "add()",
     "Error(unsupported) where the policy asks for rows of it (sync = { rows = true, ... }): make a table of it "
     "instead.",
     kUnsupported, "add: the policy asks for rows of \"w\"", [] { play::rows_of_a_tensor(Place::host); }},
    {"session.hpp", "add()", kAddRefuses, kInvalid, "\"v\" has state and no parameter",
     [] {
       alone(with("int8"), [](Rank& rank, TensorId) {
         rank.session.add("v", rank.view_of(rank.other), {.state = {rank.view_of(rank.scale)}});
       });
     }},
    {"session.hpp", "add()", kAddRefuses, kInvalid, "add: the parameter of \"v\" is",
     [] {
       alone(with("int8"), [](Rank& rank, TensorId) {
         View parameter = rank.view_of(rank.scale);
         --parameter.count;
         rank.session.add("v", rank.view_of(rank.other), {.parameter = parameter});
       });
     }},
    {"session.hpp", "add()", kAddRefuses, kInvalid, "add: the scale of \"v\" is",
     [] {
       alone(
           with("int8"),
           [](Rank& rank, TensorId) {
             rank.device->foreign.insert(rank.scale.data());
             rank.session.add("v", rank.view_of(rank.other), {.scale = rank.scale});
           },
           {}, Place::nccl);
     }},
    {"session.hpp", "add()", kAddRefuses, kInvalid, "is in the memory of a GPU", nullptr,
     "tests/session/device_pointer_test.cpp"},
    {"session.hpp", "add()", "Error(unsupported), in the first ready(), for a scale under sync modes.", kUnsupported,
     "has a scale, which sync async", [] { play::scales_in_modes(Place::host); }},
    {"session.hpp", "share()", kShare, kInvalid, "broadcast: with [elastic] spares, or where processes may join",
     [] { joinable([](Rank& rank) { rank.session.broadcast(rank.gradient_view()); }); }},
    {"session.hpp", "share()", kShare, kInvalid, "reserve: with [elastic] spares, or where processes may join",
     [] { joinable([](Rank& rank) { rank.session.reserve(); }); }},
    {"session.hpp", "share()", kShare, kInvalid, "restore: with [elastic] spares, or where processes may join",
     [] { joinable([](Rank& rank) { static_cast<void>(rank.session.restore("nowhere", {})); }); }},
    {"session.hpp", "share()", kShare, kInvalid, "load: with [elastic] spares, or where processes may join",
     [] { joinable([](Rank& rank) { rank.session.load(std::filesystem::path("nowhere")); }); }},
    {"session.hpp", "share()", kShare, kInvalid, "link: with [elastic] spares, or where processes may join",
     [] { joinable([](Rank& rank) { static_cast<void>(rank.session.link()); }); }},
    {"session.hpp", "ready()", "Twice in one step is Error(invalid_argument).", kInvalid, "was ready already in step 0",
     [] {
       alone(with("int8"), [](Rank& rank, TensorId id) {
         rank.session.add("v", rank.view_of(rank.other));
         rank.session.ready(id);
         rank.session.ready(id);
       });
     }},
    {"session.hpp", "wait()", kWait, kInvalid, "tensor(s) that are not ready, and must start first",
     [] {
       alone(with("int8"),
             [](Rank& rank, TensorId id) {
               rank.session.add("v", rank.view_of(rank.other));
               rank.session.wait(rank.session.ready(id));
             },
             {.nonfinite = Nonfinite::skip});
     }},
    {"session.hpp", "wait()", kWait, kInvalid, "the tensor's sync mode brings its result with finish()",
     [] {
       alone(with("int8", "sync = { async = true, staleness = 1 }\n"),
             [](Rank& rank, TensorId id) { rank.session.wait(rank.session.ready(id)); });
     }},
    {"session.hpp", "finish()",
     "Error(invalid_argument) names tensors that were not ready on this rank (and aborts the others).", kInvalid,
     "tensor(s) not ready on rank 0 in step 0",
     [] { alone(with("int8"), [](Rank& rank, TensorId) { rank.session.finish(); }); }},
    {"session.hpp", "add_table()", kAddTable, kInvalid, "give at least one row",
     [] { alone(with("int8"), [](Rank& rank, TensorId) { rank.session.add_table({}); }); }},
    {"session.hpp", "add_table()", kAddTableAsBefore, kInvalid, "staleness is for a Table of its own",
     &add_table_as_before},
    {"session.hpp", "add_table()", kAddTableUnsupported, kUnsupported, "add_table: tables lie in host memory",
     [] { play::tables_of_sessions(Place::nccl); }},
    {"session.hpp", "add_table()", kAddTableUnsupported, kUnsupported,
     "rows have no codec \"int4\"; use exact, bf16 or int8",
     [] {
       alone(with("int8"),
             [](Rank& rank, TensorId) { rank.session.add_table({.rows = 10, .width = 2, .codec = "int4"}); });
     }},
    {"session.hpp", "pull()", kPull, kInvalid, "id 10",
     [] {
       with_table([](Rank& rank, TableId table) {
         static_cast<void>(rank.session.pull(table, kOutside, std::span(rank.other).first(2)));
       });
     }},
    {"session.hpp", "pull()", kPull, kInvalid, "need 4 elements, not 3",
     [] {
       with_table([](Rank& rank, TableId table) {
         static_cast<void>(rank.session.pull(table, kIds, std::span(rank.other).first(3)));
       });
     }},
    {"session.hpp", "pull()", kPull, kInvalid, "pull: step 0 is under way",
     [] {
       with_table([](Rank& rank, TableId table) {
         rank.session.ready(TensorId{0});
         static_cast<void>(rank.session.pull(table, kIds, std::span(rank.other).first(4)));
       });
     }},
    {"session.hpp", "push()", kPush, kInvalid, "id 10",
     [] { with_table([](Rank& rank, TableId table) {
            rank.session.push(table, kOutside, std::array{1.0F, 2.0F});
          }); }},
    {"session.hpp", "push()", kPush, kInvalid, "the gradient for id 1 has NaN or Inf",
     [] {
       with_table([](Rank& rank, TableId table) {
         rank.session.push(table, kIds, std::array{1.0F, std::numeric_limits<float>::quiet_NaN(), 0.0F, 0.0F});
       });
     }},
    {"session.hpp", "push()", kPush, kInvalid, "or has as bf16",
     [] {
       with_table([](Rank& rank, TableId table) {
         rank.session.push(table, kIds, std::array{1.0F, kAlmostInfinite, 0.0F, 0.0F});
       });
     }},
    {"session.hpp", "on_world_change()",
     "Error(invalid_argument) where the session is not over Processes: its world never changes.", kInvalid,
     "on_world_change: the world of this session never changes", [] { play::world_change(Place::host); }},
    {"session.hpp", "set_loss_scale()",
     "Error(unsupported) under outer momentum, whose residuals are of parameters: unscale gradients before the "
     "optimizer.",
     kUnsupported, "residuals of parameter changes have no loss scale", [] { play::scale_under_outer(Place::host); }},
    {"session.hpp", "save()", "Error(invalid_argument) names what cannot be written.", kInvalid, "/dev/null/state",
     [] { alone(with("int8"), [](Rank& rank, TensorId) { rank.session.save("/dev/null/state"); }); }},
    {"session.hpp", "load()", "and a stream is Error(unsupported).", kUnsupported, "load: a stream is one rank's",
     [] {
       with_table([](Rank& rank, TableId) {
         std::istringstream stream;
         rank.session.load(stream);
       });
     }},
    {"session.hpp", "checkpoint()", kCheckpoint, kInvalid, "later than this session's step 0",
     [] {
       const test::ScratchFolder scratch;
       alone(with("int8"), [&](Rank& rank, TensorId id) {
         rank.step(id);
         rank.session.checkpoint(scratch.path(), {});
         rank.session.wait_for_checkpoint();
       });
       alone(with("int8"), [&](Rank& rank, TensorId) { rank.session.checkpoint(scratch.path(), {}); });
     }},
    {"session.hpp", "checkpoint()", kCheckpoint, kUnsupported, "checkpoint: not in a session over device memory",
     [] { play::checkpoint(Place::nccl); }},
    {"session.hpp", "restore()",
     "Error(invalid_argument) where a rank cannot read what is there: nothing has changed then.", kInvalid,
     "/dev/null: cannot be read",
     [] { alone(with("int8"), [](Rank& rank, TensorId) { rank.session.restore("/dev/null", {}); }); }},
    {"session.hpp", "restore()", "Error(unsupported) over device memory. A directory belongs to one job.", kUnsupported,
     "restore: not in a session over device memory",
     [] {
       alone(
           with("int8"), [](Rank& rank, TensorId) { rank.session.restore("nowhere", {}); }, {}, Place::nccl);
     }},
    {"session.hpp", "link()", "between steps. Blocks. Error(unsupported) over device memory.", kUnsupported,
     "link: links between devices are not measured yet", [] { play::link(Place::nccl); }},
    {"session.hpp", "record_gradients()",
     "Error(invalid_argument) where the directory cannot be written, or holds an earlier recording.", kInvalid,
     "gradients cannot be recorded in /dev/null/own",
     [] { alone(with("int8"), [](Rank& rank, TensorId) { rank.session.record_gradients("/dev/null/own", 1); }); }},
    {"session.hpp", "record_gradients()", "Error(unsupported) for gradients in device memory.", kUnsupported,
     "record_gradients: not in a session over device memory", [] { play::record_gradients(Place::nccl); }},
    {"session.hpp", "batch_advice()", "Error(invalid_argument) without [batch].", kInvalid,
     "batch_advice: the policy has no [batch]",
     [] { alone(with("int8"), [](Rank& rank, TensorId) { static_cast<void>(rank.session.batch_advice()); }); }},
    {"session.hpp", "note()", kNote, kInvalid, "note: \"my loss\" is no name",
     [] { alone(with("int8"), [](Rank& rank, TensorId) { rank.session.note("my loss", 1); }); }},
    {"session.hpp", "note()", kNote, kInvalid, "note: n16 is one name too many",
     [] {
       alone(with("int8"), [](Rank& rank, TensorId) {
         for (int i = 0; i < 17; ++i) {
           rank.session.note("n" + std::to_string(i), i);
         }
       });
     }},

};

}  // namespace

std::span<const Promise> promises_of_sessions() { return kPromisesOfSessions; }

}  // namespace gradwire::support
