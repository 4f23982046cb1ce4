// The table of features, which says what works where.
#include "tests/support_matrix/feature_plays.hpp"
#include "tests/support_matrix/matrix.hpp"

#ifdef GRADWIRE_SUPPORT_MATRIX_OF_C
#define IN_C(name) &play_in_c::name
#else
#define IN_C(name) nullptr
#endif

namespace gradwire::support {
namespace {

using Cells = std::array<Cell, kPlaces>;
constexpr Cell kYes{};
constexpr Cell differs(std::string_view how) { return {.kind = Cell::Kind::differs, .text = how}; }
constexpr Cell refused(ErrorCode code, std::string_view text, std::string_view not_played = {}) {
  return {.kind = Cell::Kind::refused, .code = code, .text = text, .not_played = not_played};
}
constexpr Cell absent(std::string_view word) { return {.kind = Cell::Kind::absent, .text = word}; }
constexpr Cell none(std::string_view why) { return {.kind = Cell::Kind::none, .text = why}; }

constexpr Cells everywhere(Cell cell = kYes) { return {cell, cell, cell, cell, cell, cell}; }
/// Cells of a feature that works over host memory, and is `device` at all three places over device memory.
constexpr Cells host_only(Cell device, Cell c = kYes) { return {kYes, kYes, device, device, device, c}; }
/// Cells of a feature that needs Processes.
constexpr Cells elastic_only(Cell elsewhere, std::string_view word_in_c) {
  return {elsewhere, kYes, elsewhere, kYes, elsewhere, absent(word_in_c)};
}
/// Cells of a feature of communicators: over a transport, over NCCL, in C.
constexpr Cells calls(Cell nccl, Cell c = kYes) {
  return {kYes, none("A `Communicator` takes a `Transport`."), absent("Communicator"), absent("Communicator"), nccl, c};
}

constexpr Cell kNoModes = refused(kUnsupported, "over device memory there is no sync but \"step\" yet");
constexpr Cell kNoMeasurement = refused(kInvalid, "which deterministic = true forbids; name a codec");
constexpr Cell kNoAdvice = refused(kInvalid, "[batch] advises by measurement, which deterministic forbids");
constexpr Cell kNoChecksum = refused(kUnsupported, "checksum: frames made on a device carry none");
constexpr Cell kNoDecision = refused(kInvalid, "on_world_change: the world of this session never changes");
constexpr Cell kTwoShot = differs("The all-reduce is a two_shot one.");
constexpr Cell kNoSums =
    differs("Exact values travel as two_shot, since a transport's own sums know no device memory.");
constexpr Cell kNoGraph = none("Only device memory has graphs.");
constexpr Cell kJobEnds = none("The job ends as a whole.");

constexpr Feature kFeatures[] = {
    {"What travels", "codecs: exact, bf16, int8, int4, ...", everywhere(), &play::codecs, IN_C(codecs)},
    {"What travels", "`exact+zstd`: the bits of exact in fewer bytes",
     host_only(refused(kUnsupported, "exact+zstd packs frames on the cores of hosts")), &play::packed, IN_C(packed)},
    {"What travels", "topk, error feedback, warm-up, decay", everywhere(), &play::feedback, IN_C(feedback)},
    {"What travels", "residuals in bf16", host_only(refused(kUnsupported, "is for residuals in the memory of hosts")),
     &play::narrow_residuals, IN_C(narrow_residuals)},
    {"What travels",
     "`codec = \"auto\"`: chosen by measurement",
     {kYes, kYes, kNoMeasurement, kNoMeasurement, differs("Whole steps are timed, at first by NCCL's own sums."), kYes},
     &play::automatic,
     IN_C(automatic)},
    {"What travels",
     "the algorithm hierarchical",
     {kYes, kYes, kTwoShot, kTwoShot,
      differs("NCCL sums inside nodes, in f32 or bf16 and in its own order; `deterministic = true` refuses that."),
      kYes},
     &play::hierarchical,
     IN_C(hierarchical)},
    {"What travels",
     "`dense`: sums of the library below",
     {kYes, kYes, kNoSums, kNoSums, kYes, kYes},
     &play::dense,
     IN_C(dense)},
    {"What travels", "small steps, made inside `finish()`", host_only(none("A step is enqueued, whatever its size.")),
     &play::small_steps, IN_C(small_steps)},
    {"What travels", "f32, f16, bf16, f64", everywhere(), &play::dtypes, IN_C(dtypes)},
    {"What travels", "scales: preconditioned encoding", everywhere(), &play::scales, IN_C(scales)},
    {"What travels", "checksums that are asked for", host_only(kNoChecksum), &play::checksum, IN_C(checksum)},
    {"What travels", "`max_error`", everywhere(refused(kUnsupported, "max_error is for jobs without a session")),
     &play::max_error, IN_C(max_error)},

    {"When", "local steps: `every`", host_only(kNoModes), &play::local_steps, IN_C(local_steps)},
    {"When", "outer momentum: `outer`", host_only(kNoModes), &play::outer, IN_C(outer)},
    {"When", "late results: `async`", host_only(kNoModes), &play::late_results, IN_C(late_results)},
    {"When", "scales under sync modes", everywhere(refused(kUnsupported, "has a scale, which sync async")),
     &play::scales_in_modes, IN_C(scales_in_modes)},
    {"When", "a loss scale under `outer`",
     [] {
       constexpr Cell kNo = refused(kUnsupported, "residuals of parameter changes have no loss scale");
       return Cells{kNo, kNo, kNoModes, kNoModes, kNoModes, kNo};
     }(),
     &play::scale_under_outer, IN_C(scale_under_outer)},
    {"When", "`rows` for a tensor of a session",
     everywhere(refused(kUnsupported, "add: the policy asks for rows of \"w\"")), &play::rows_of_a_tensor,
     IN_C(rows_of_a_tensor)},

    {"Steps", "weights of ranks", everywhere(), &play::weights, IN_C(weights)},
    {"Steps", "loss scale; steps with NaN are skipped", everywhere(), &play::loss_scale, IN_C(loss_scale)},
    {"Steps", "`no_sync()`", everywhere(), &play::no_sync, IN_C(no_sync)},
    {"Steps", "tickets: `done()`, `wait()`", everywhere(), &play::tickets, IN_C(tickets)},
    {"Steps", "a gradient at another address", everywhere(), &play::other_address, IN_C(other_address)},
    {"Steps", "`flush()`", everywhere(), &play::flush, IN_C(flush)},
    {"Steps", "`broadcast()`", everywhere(), &play::broadcast, IN_C(broadcast)},
    {"Steps", "`reserve()`", everywhere(), &play::reserve, IN_C(reserve)},
    {"Steps",
     "steps captured into a graph",
     {kNoGraph, kNoGraph, refused(kUnsupported, "cannot be captured into a graph; use NCCL", "needs a GPU"),
      refused(kUnsupported, "agrees in each step whether it counts"), kYes, kNoGraph},
     &play::capture},
    {"Steps",
     "weights in a captured step",
     {kNoGraph, kNoGraph, none("Nothing can be captured here."), none("Nothing can be captured here."),
      refused(kInvalid, "weights would be those of the capture for ever"), kNoGraph},
     &play::captured_weights},
    {"Steps", "`compare_ranks_every`", everywhere(), &play::compare_ranks, IN_C(compare_ranks)},
    {"Steps", "`measure_error`",
     host_only(refused(kUnsupported, "measure_error: a session over device memory cannot"), absent("measure_error")),
     &play::measure_error},
    {"Steps", "`link()`", host_only(refused(kUnsupported, "link: links between devices are not measured yet")),
     &play::link, IN_C(link)},
    {"Steps",
     "advice on the batch: `[batch]`",
     {kYes, kYes, kNoAdvice, kNoAdvice, differs("Nothing is measured: the advice stays what it is at the start."),
      kYes},
     &play::batch,
     IN_C(batch)},
    {"Steps", "`record_gradients()`",
     host_only(refused(kUnsupported, "record_gradients: not in a session over device memory"),
               absent("record_gradients")),
     &play::record_gradients},
    {"Steps", "statistics, `explain()`, `fingerprint()`", everywhere(), &play::explain, IN_C(explain)},

    {"State", "`save()`, `load()`: a directory", everywhere(), &play::folder, IN_C(folder)},
    {"State", "`save()`, `load()`: a stream", host_only(kYes, absent("stream")), &play::stream},
    {"State", "`checkpoint()`, `restore()`",
     host_only(refused(kUnsupported, "not in a session over device memory"), absent("checkpoint")), &play::checkpoint},
    {"State", "tables of a session", host_only(refused(kUnsupported, "add_table: tables lie in host memory")),
     &play::tables_of_sessions, IN_C(tables_of_sessions)},

    {"Ranks that end", "the others go on", elastic_only(kJobEnds, "gradwire_processes"), &play::going_on},
    {"Ranks that end", "spares", elastic_only(kJobEnds, "spare"), &play::spares},
    {"Ranks that end", "processes that join", elastic_only(kJobEnds, "join"), &play::joining},
    {"Ranks that end", "`on_world_change()`", elastic_only(kNoDecision, "on_world_change"), &play::world_change},
    {"Ranks that end", "`share()`", host_only(kYes, absent("gradwire_session_share")), &play::share},
    {"Ranks that end", "`confirm()`", host_only(kYes, absent("confirm")), &play::confirm},

    {"Calls without a session", "all-reduce", calls(kYes), &play::all_reduce, IN_C(all_reduce)},
    {"Calls without a session", "the algorithm automatic", calls(differs("It is always two_shot.")),
     &play::automatic_calls, IN_C(automatic_calls)},
    {"Calls without a session", "the algorithm hierarchical",
     calls(refused(kUnsupported, "the algorithm hierarchical is not for device memory in this version")),
     &play::hierarchical_calls, IN_C(hierarchical_calls)},
    {"Calls without a session", "weights of ranks", calls(kYes, absent("double weight")), &play::weighted_calls},
    {"Calls without a session", "error feedback",
     calls(refused(kUnsupported, "error feedback over device memory needs a session")), &play::feedback_of_calls,
     IN_C(feedback_of_calls)},
    {"Calls without a session", "reduce-scatter, all-gather, broadcast", calls(absent("reduce_scatter")),
     &play::other_calls, IN_C(other_calls)},
    {"Calls without a session", "checksums that are asked for", calls(kNoChecksum), &play::checked_calls,
     IN_C(checked_calls)},
    {"Calls without a session",
     "calls captured into a graph",
     {kNoGraph, none("A `Communicator` takes a `Transport`."), absent("Communicator"), absent("Communicator"), kYes,
      kNoGraph},
     &play::captured_calls},

    {"Beside it",
     "`gradwire::Table`: clocks and staleness",
     {kYes, none("A `Table` takes a `Transport`."), absent("Table"), absent("Table"), absent("Table"), kYes},
     &play::table,
     IN_C(table)},
    {"Beside it", "`AdamW`, `Sgd`, `send_momentum()`", host_only(none("They work on host memory."), absent("adamw")),
     &play::optimizers},
};

}  // namespace

std::span<const Feature> features() { return kFeatures; }

std::string_view to_string(Place place) noexcept {
  switch (place) {
    case Place::host: return "host";
    case Place::processes: return "host, Processes";
    case Place::cuda: return "GPU";
    case Place::cuda_processes: return "GPU, Processes";
    case Place::nccl: return "NCCL";
    case Place::c: return "C";
  }
  return "unknown";
}

}  // namespace gradwire::support
