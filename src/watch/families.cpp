// The metrics that there are. docs/reference/metrics.md lists them, and a test compares both.
#include <algorithm>
#include <cstdlib>
#include <string>
#include <utility>

#include "base/emulated_link.hpp"
#include "gradwire/version.hpp"
#include "watch/aggregate.hpp"

namespace gradwire::watch {
namespace {

using observe::EventKind;
using Group = SessionStatistics::Group;

constexpr double number(std::uint64_t count) { return static_cast<double>(count); }

Labels labels_of(const Group& group) { return {{"group", group.name}, {"codec", label_of_codec(group.codec)}}; }

Labels with(Labels labels, const char* name, const std::string& value) {
  labels.emplace_back(name, value);
  return labels;
}

// The numbers of buckets by codec of "auto: int8 3, dense 1". Empty for a codec that is not chosen.
std::vector<std::pair<std::string, double>> in_use(const std::string& codec) {
  std::vector<std::pair<std::string, double>> uses;
  std::size_t at = codec.find(": ");
  while (at != std::string::npos && at + 2 < codec.size()) {
    const std::size_t end = codec.find(", ", at + 2);
    const std::string one = codec.substr(at + 2, end == std::string::npos ? end : end - at - 2);
    const std::size_t blank = one.rfind(' ');
    if (blank != std::string::npos) {
      uses.emplace_back(one.substr(0, blank), std::strtod(one.c_str() + blank + 1, nullptr));
    }
    at = end;
  }
  return uses;
}

class Builder {
 public:
  Builder(const RankTotals& rank, const ReaderState& reader) : rank_(rank), reader_(reader), sum_(rank.sum()) {}

  void add(const char* name, MetricType type, const char* help, double value) {
    families_.push_back({name, help, type, {{{}, value}}});
  }
  template <typename Value>
  void add_groups(const char* name, MetricType type, const char* help, Value&& value) {
    Family family{name, help, type};
    for (const Group& group : sum_.groups) {
      family.samples.push_back({labels_of(group), value(group)});
    }
    families_.push_back(std::move(family));
  }
  enum class Empty : bool { shown, left_out };
  void add_histograms(const char* name, const char* help, const char* label,
                      std::initializer_list<std::pair<EventKind, const char*>> kinds, const ByKind<Histogram>& from,
                      Empty empty = Empty::shown) {
    Family family{name, help, MetricType::histogram};
    for (const auto& [kind, value] : kinds) {
      if (empty == Empty::shown || from[kind].count() > 0) {
        family.histograms.push_back({label == nullptr ? Labels{} : Labels{{label, value}}, from[kind]});
      }
    }
    families_.push_back(std::move(family));
  }

  void process() {
    families_.push_back({"gradwire_info",
                         "Version of gradwire, how bytes travel, the clock that stamps events, and the host.",
                         MetricType::gauge,
                         {{{{"version", std::string(kVersion)},
                            {"transport", over_emulated_link(sum_.transport, emulated_link_of_job())},
                            {"clock", std::string(to_string(reader_.clock))},
                            {"host", reader_.host}},
                           1}}});
    add("gradwire_world_size", MetricType::gauge, "Ranks of the job.", rank_.world_size);
    add("gradwire_job_ended", MetricType::gauge, "1 once the rank has ended and writes no more.",
        reader_.ended ? 1 : 0);
    add("gradwire_events_total", MetricType::counter, "Events that were recorded.", number(reader_.recorded));
    add("gradwire_events_dropped_total", MetricType::counter, "Events that were lost because a ring was full.",
        number(reader_.dropped));
    add("gradwire_observer_cpu_seconds_total", MetricType::counter, "CPU time of the thread that reads events.",
        reader_.cpu_seconds);
    add("gradwire_errors_total", MetricType::counter, "Sessions, communicators and tables that gave up.",
        number(rank_.events[EventKind::error]));
  }

  void steps() {
    add("gradwire_steps_total", MetricType::counter, "Optimizer steps that ended.", number(sum_.steps));
    add("gradwire_exposed_seconds_total", MetricType::counter,
        "Time inside finish(): communication that no computation hid.", sum_.exposed_seconds);
    families_.push_back({"gradwire_step_seconds",
                         "From the end of one step to the end of the next.",
                         MetricType::histogram,
                         {},
                         {{{}, rank_.steps}}});
    add_histograms("gradwire_step_exposed_seconds", "Time inside finish() of a step.", nullptr,
                   {{EventKind::step_end, ""}}, rank_.seconds);
    add_histograms("gradwire_bucket_seconds", "From entering a bucket's collective to its result.", nullptr,
                   {{EventKind::bucket_end, ""}}, rank_.seconds);
    add_histograms("gradwire_stage_seconds",
                   "Time of one stage of one lane; wait: for messages, with nothing to compute.", "stage",
                   {{EventKind::encode, "encode"},
                    {EventKind::reduce, "reduce"},
                    {EventKind::decode, "decode"},
                    {EventKind::native, "native"},
                    {EventKind::wait, "wait"}},
                   rank_.seconds);
    add_histograms("gradwire_message_bytes", "Size of messages.", "direction",
                   {{EventKind::send, "sent"}, {EventKind::receive, "received"}, {EventKind::all_reduce, "native"}},
                   rank_.bytes);
  }

  void groups() {
    const MetricType counter = MetricType::counter;
    add_groups("gradwire_calls_total", counter, "Collectives.", [](const Group& g) { return number(g.totals.calls); });
    add_groups("gradwire_bytes_in_total", counter, "Bytes of the tensors handed in.",
               [](const Group& g) { return number(g.totals.bytes_in); });
    Family sent{"gradwire_bytes_sent_total", "Bytes sent, as the transport counted them.", counter};
    for (const Group& group : sum_.groups) {
      sent.samples.push_back({with(labels_of(group), "tier", "intra"), number(group.totals.bytes_intra)});
      sent.samples.push_back({with(labels_of(group), "tier", "inter"), number(group.totals.bytes_inter)});
    }
    families_.push_back(std::move(sent));
    add_groups("gradwire_bytes_uncompressed_total", counter, "Bytes that the same collectives would send uncompressed.",
               [](const Group& g) { return number(g.totals.bytes_uncompressed); });
    add_groups("gradwire_compression_ratio", MetricType::gauge,
               "Bytes uncompressed over bytes sent, since the beginning.",
               [](const Group& g) { return g.totals.ratio(); });
    add_groups("gradwire_frames_sent_total", counter, "Frames sent.",
               [](const Group& g) { return number(g.totals.frames_sent); });
    add_groups("gradwire_nonfinite_frames_total", counter, "Frames with NaN or Inf inside.",
               [](const Group& g) { return number(g.totals.nonfinite_frames); });
    Family seconds{"gradwire_work_seconds_total", "Time of the rank that communicates, by what it did.", counter};
    for (const Group& group : sum_.groups) {
      seconds.samples.push_back({with(labels_of(group), "work", "encode"), group.totals.encode_seconds});
      seconds.samples.push_back({with(labels_of(group), "work", "decode"), group.totals.decode_seconds});
      seconds.samples.push_back({with(labels_of(group), "work", "wait"), group.totals.wire_seconds});
    }
    families_.push_back(std::move(seconds));
    Family error{"gradwire_relative_error_ratio", "Norm of the error over that of the exact sum, where it is measured.",
                 MetricType::gauge};
    Family use{"gradwire_codec_buckets", "Buckets that a codec is chosen for now, where codec = \"auto\".",
               MetricType::gauge};
    for (const Group& group : sum_.groups) {
      if (group.totals.relative_error() >= 0) {
        error.samples.push_back({labels_of(group), group.totals.relative_error()});
      }
      for (const auto& [codec, buckets] : in_use(group.codec)) {
        use.samples.push_back({{{"group", group.name}, {"codec", codec}}, buckets});
      }
    }
    families_.push_back(std::move(error));
    families_.push_back(std::move(use));
    switches();
    late_results();
  }

  void switches() {
    Family family{"gradwire_codec_switches_total", "Changes of a codec that codec = \"auto\" made, and why.",
                  MetricType::counter};
    for (const char* cause : {"start", "faster", "quality", "guard"}) {
      const auto same = [&](const CodecSwitch& change) { return change.cause == cause; };
      const auto count = std::count_if(sum_.switches.begin(), sum_.switches.end(), same);
      family.samples.push_back({{{"cause", cause}}, static_cast<double>(count)});
    }
    families_.push_back(std::move(family));
  }

  void late_results() {
    Family late{"gradwire_late_results_total", "Results that came in a later step than their gradients.",
                MetricType::counter};
    Family ages{"gradwire_late_result_steps_total", "Steps that these came later, summed.", MetricType::counter};
    for (const Group& group : sum_.groups) {
      if (group.late.results > 0) {
        late.samples.push_back({labels_of(group), number(group.late.results)});
        ages.samples.push_back({labels_of(group), number(group.late.steps)});
      }
    }
    families_.push_back(std::move(late));
    families_.push_back(std::move(ages));
  }

  // The worst of several sessions counts.
  void slow() {
    if (rank_.slow.empty()) {
      return;
    }
    Family causes{"gradwire_rank_slow", "1 where other ranks wait for this one, and why.", MetricType::gauge};
    double last = 0;
    double waited = 0;
    for (int i = 1; i < observe::kSlowCauses; ++i) {
      const auto cause = static_cast<observe::SlowCause>(i);
      bool is = false;
      for (const auto& [source, state] : rank_.slow) {
        is = is || state.cause == cause;
        last = std::max(last, state.latest.last_arrivals);
        waited = std::max(waited, state.latest.share);
      }
      causes.samples.push_back({{{"cause", std::string(to_string(cause))}}, is ? 1.0 : 0.0});
    }
    families_.push_back(std::move(causes));
    add("gradwire_rank_last_arrivals_ratio", MetricType::gauge,
        "Share of lanes in which other ranks waited for a frame of this one last.", last);
    add("gradwire_rank_waited_for_ratio", MetricType::gauge, "Share of a step in which other ranks wait for this one.",
        waited);
  }

  void health() {
    Family nmse{"gradwire_nmse_ratio", "Squared norm of what encoding dropped over that of what it encoded, sampled.",
                MetricType::gauge};
    Family residual{"gradwire_residual_norm_ratio",
                    "Norm of what error feedback keeps over that of the gradient, sampled.", MetricType::gauge};
    for (const auto& [key, health] : rank_.health) {
      const Labels labels{{"group", key.first}, {"codec", key.second}};
      nmse.samples.push_back({labels, health.nmse});
      residual.samples.push_back({labels, health.residual_ratio});
    }
    families_.push_back(std::move(nmse));
    families_.push_back(std::move(residual));
  }

  void notes() {
    Family family{"gradwire_note", "Numbers that the job told its session, the latest of each name.",
                  MetricType::gauge};
    for (const auto& [name, value] : rank_.notes) {
      family.samples.push_back({{{"name", name}}, value});
    }
    families_.push_back(std::move(family));
  }

  void link() {
    Family latency{"gradwire_link_latency_seconds", "Latency of links, where codec = \"auto\" measures it.",
                   MetricType::gauge};
    Family rate{"gradwire_link_bytes_per_second", "What links carry one way, as codec = \"auto\" saw last.",
                MetricType::gauge};
    const auto add_tier = [&](const char* tier, const LinkEstimate::Tier& seen) {
      latency.samples.push_back({{{"tier", tier}}, seen.latency_seconds});
      rate.samples.push_back({{{"tier", tier}}, seen.bytes_per_second});
    };
    if (rank_.link) {
      add_tier("inter", rank_.link->inter);
      if (rank_.link->ranks_per_node > 1) {
        add_tier("intra", rank_.link->intra);
      }
    }
    families_.push_back(std::move(latency));
    families_.push_back(std::move(rate));
    add("gradwire_bucket_byte_seconds_total", MetricType::counter,
        "Bytes of buckets times how long they were under way: its rate is the bytes under way.",
        rank_.bucket_byte_seconds);
  }

  void memory() {
    double residuals = 0;
    double frames = 0;
    for (const auto& [source, each] : rank_.memory) {
      residuals += number(each.residual_bytes);
      frames += number(each.frame_bytes);
    }
    Family family{"gradwire_memory_bytes",
                  "Memory of gradwire in the host: residuals, frame buffers at their peak, rings of events.",
                  MetricType::gauge,
                  {{{{"kind", "rings"}}, number(reader_.ring_bytes)}}};
    if (!rank_.memory.empty()) {  // only sessions know theirs
      family.samples.push_back({{{"kind", "residuals"}}, residuals});
      family.samples.push_back({{{"kind", "frames"}}, frames});
    }
    families_.push_back(std::move(family));
  }

  void rows() {
    Family count{"gradwire_table_rows_total", "Rows that pulls returned: received from their owner, or there already.",
                 MetricType::counter};
    Family ages{"gradwire_table_row_age_clocks_total", "Ages of these rows in clocks, summed.", MetricType::counter};
    Family oldest{"gradwire_table_oldest_row_clocks", "The greatest age of a row that a pull returned.",
                  MetricType::gauge};
    observe::Knowledge::Rows sum;
    for (const auto& [source, each] : rank_.rows) {
      sum.pulled += each.pulled;
      sum.received += each.received;
      sum.ages += each.ages;
      sum.greatest_age = std::max(sum.greatest_age, each.greatest_age);
    }
    if (!rank_.rows.empty()) {
      count.samples = {{{{"from", "owner"}}, number(sum.received)},
                       {{{"from", "here"}}, number(sum.pulled - std::min(sum.received, sum.pulled))}};
      ages.samples = {{{}, number(sum.ages)}};
      oldest.samples = {{{}, number(sum.greatest_age)}};
    }
    for (Family* family : {&count, &ages, &oldest}) {
      families_.push_back(std::move(*family));
    }
  }

  void others() {
    add_histograms("gradwire_table_seconds", "Time of a call of an embedding table.", "call",
                   {{EventKind::pull, "pull"}, {EventKind::push, "push"}}, rank_.seconds, Empty::left_out);
    Family bytes{"gradwire_table_bytes_total", "Bytes of rows that were pulled and pushed.", MetricType::counter};
    for (const EventKind kind : {EventKind::pull, EventKind::push}) {
      if (rank_.events[kind] > 0) {
        bytes.samples.push_back({{{"call", std::string(to_string(kind))}}, number(rank_.sum_of_bytes[kind])});
      }
    }
    families_.push_back(std::move(bytes));
    add_histograms("gradwire_checkpoint_seconds", "Time to save or load a session's state.", "call",
                   {{EventKind::save, "save"}, {EventKind::load, "load"}}, rank_.seconds, Empty::left_out);
    if (sum_.device_memory) {
      const DeviceMemory& memory = *sum_.device_memory;
      families_.push_back({"gradwire_device_memory_bytes",
                           "Memory of sessions over a device.",
                           MetricType::gauge,
                           {{{{"kind", "in_use"}}, number(memory.bytes_in_use)},
                            {{{"kind", "peak"}}, number(memory.peak_bytes)},
                            {{{"kind", "held"}}, number(memory.held_bytes)},
                            {{{"kind", "pinned"}}, number(memory.pinned_bytes)}}});
    }
  }

  void replaced(std::span<const ReplacedCalls> calls) {
    Family count{"gradwire_replaced_calls_total", "Calls of the job that a drop-in saw, and why it passed them on.",
                 MetricType::counter};
    Family in{"gradwire_replaced_bytes_in_total", "Bytes of these calls.", MetricType::counter};
    Family sent{"gradwire_replaced_bytes_sent_total", "Bytes sent by them; of those passed on, by a perfect algorithm.",
                MetricType::counter};
    Family uncompressed{"gradwire_replaced_bytes_uncompressed_total",
                        "Bytes that a perfect uncompressed algorithm would send for them.", MetricType::counter};
    Family seconds{"gradwire_replaced_seconds_total", "Time inside them, where they are large enough to be timed.",
                   MetricType::counter};
    for (const ReplacedCalls& each : calls) {
      const Labels labels{{"function", each.function},
                          {"outcome", each.reason.empty() ? "compressed" : "passed"},
                          {"reason", each.reason}};
      count.samples.push_back({labels, number(each.calls)});
      in.samples.push_back({labels, number(each.bytes_in)});
      sent.samples.push_back({labels, number(each.bytes_sent)});
      uncompressed.samples.push_back({labels, number(each.bytes_dense)});
      seconds.samples.push_back({labels, each.seconds});
    }
    for (Family* family : {&count, &in, &sent, &uncompressed, &seconds}) {
      families_.push_back(std::move(*family));
    }
  }

  std::vector<Family> take() { return std::move(families_); }

 private:
  const RankTotals& rank_;
  const ReaderState& reader_;
  const SessionStatistics sum_;
  std::vector<Family> families_;
};

}  // namespace

std::vector<Family> families(const RankTotals& rank, const ReaderState& reader,
                             std::span<const ReplacedCalls> replaced) {
  Builder builder(rank, reader);
  builder.process();
  builder.steps();
  builder.groups();
  builder.slow();
  builder.health();
  builder.notes();
  builder.link();
  builder.memory();
  builder.others();
  builder.rows();
  builder.replaced(replaced);
  return builder.take();
}

}  // namespace gradwire::watch
