// Lists the defaults of calls and sessions.
#include "api/c_api.hpp"
#include "exchange/default_codecs.hpp"
#include "policy/stage.hpp"
#include "tests/defaults/defaults_text.hpp"
#include "tests/support/ranks.hpp"

namespace gradwire::test {
namespace {

// Returns the options that a C struct of zeros stands for.
CallOptions c_call() { return api::call_options_of(nullptr, "a call"); }
CommunicatorOptions c_communicator() { return api::communicator_options_of(nullptr, "a communicator"); }
SessionOptions c_session() { return api::session_options_of(nullptr, "a session"); }

using Broadcast = std::function<void(const std::shared_ptr<Transport>& transport, std::vector<float>& values)>;

// Returns "exact" if rank 0's values arrive bit by bit.
std::string codec_of(const Broadcast& broadcast) {
  std::vector<float> sent(5000);
  for (std::size_t i = 0; i < sent.size(); ++i) {
    sent[i] = 1 / static_cast<float>(i + 1);
  }
  bool exact = false;
  run_ranks(2, [&](const std::shared_ptr<Transport>& transport) {
    std::vector<float> values = transport->rank() == 0 ? sent : std::vector<float>(sent.size());
    broadcast(transport, values);
    if (transport->rank() == 1) {
      exact = values == sent;
    }
  });
  return exact ? "exact" : "lossy";
}

void check(gradwire_status status) {
  if (status != GRADWIRE_OK) {
    throw Error(ErrorCode::internal, gradwire_last_error());
  }
}

std::string codec_of_a_call() {
  return codec_of([](const auto& transport, std::vector<float>& values) {
    Communicator(transport).broadcast(view(values.data(), values.size()), 0);
  });
}
std::string codec_of_a_c_call() {
  return codec_of([](const auto& transport, std::vector<float>& values) {
    gradwire_communicator handle{Communicator(transport, c_communicator())};
    check(gradwire_broadcast(&handle, values.data(), values.size(), GRADWIRE_F32, 0, nullptr, nullptr));
  });
}
std::string codec_of_a_session() {
  return codec_of([](const auto& transport, std::vector<float>& values) {
    Session(transport, Policy()).broadcast(view(values.data(), values.size()));
  });
}
std::string codec_of_a_c_session() {
  return codec_of([](const auto& transport, std::vector<float>& values) {
    gradwire_session handle{Session(transport, Policy(), c_session())};
    check(gradwire_session_broadcast(&handle, values.data(), values.size(), GRADWIRE_F32, 0));
  });
}

// The policy of the session decides.
Default by_policy() { return {"policy"}; }
// Stands for fields that have no default.
Default nothing() { return {""}; }

void add(DefaultTable& table, const std::string& what, Default call, Default call_in_c, Default session,
         Default session_in_c, Default policy) {
  table.rows.push_back(
      {what, {std::move(call), std::move(call_in_c), std::move(session), std::move(session_in_c), std::move(policy)}});
}

// Adds the defaults of codecs.
void add_codecs(DefaultTable& table) {
  add(table, "algorithm of an all-reduce", {"auto", [] { return text(CallOptions().algorithm); }},
      {"two_shot", [] { return text(c_call().algorithm); }}, by_policy(), by_policy(),
      of_policy("auto", [](const Policy& all) { return text(all.defaults.algorithm); }));
  add(table, "codec", {"int8", [] { return text(CallOptions().codec); }}, {"int8", [] { return text(c_call().codec); }},
      by_policy(), by_policy(), of_policy("int8", [](const Policy& all) { return text(all.defaults.codec); }));
  add(table, "codec of a broadcast", {"exact", codec_of_a_call}, {"exact", codec_of_a_c_call},
      {"exact", codec_of_a_session}, {"exact", codec_of_a_c_session}, nothing());
  add(table, "codec of small tensors", nothing(), nothing(), by_policy(), by_policy(),
      of_policy("bf16 below 64KiB", [](const Policy& all) {
        return all.small ? text(all.small->codec) + " below " + format_bytes(all.small->below) : "as others";
      }));
  add(table, "codec inside nodes",
      {"bf16", [] { return text(exchange::intra_codec(CallOptions().codec, CallOptions().intra_codec)); }},
      {"bf16", [] { return text(exchange::intra_codec(c_call().codec, c_call().intra_codec)); }}, by_policy(),
      by_policy(), of_policy("bf16", [](const Policy& all) {
        return text(exchange::intra_codec(all.defaults.codec, all.tiers.intra_codec));
      }));
  add(table, "codec of the second hop",
      {"by the codec", [] { return given(CallOptions().second_hop, "by the codec"); }},
      {"by the codec", [] { return given(c_call().second_hop, "by the codec"); }}, by_policy(), by_policy(),
      of_policy("by the codec", [](const Policy& all) { return given(all.defaults.second_hop, "by the codec"); }));
}

// Adds the rows that say what a call sums, and how the values travel.
void add_exchange(DefaultTable& table) {
  add(table, "sum or mean", {"sum", [] { return text(CallOptions().reduction); }},
      {"sum", [] { return text(c_call().reduction); }}, {"mean", [] { return text(SessionOptions().reduction); }},
      {"mean", [] { return text(c_session().reduction); }}, nothing());
  add(table, "weights of ranks", {"equal", [] { return given(CallOptions().weight, "equal"); }},
      {"equal", [] { return given(c_call().weight, "equal"); }}, {"equal"}, {"equal"}, nothing());
  add(table, "error feedback", {"off", [] { return text(CallOptions().feedback != nullptr); }},
      {"off", [] { return text(c_call().feedback != nullptr); }}, by_policy(), by_policy(),
      of_policy("auto", [](const Policy& all) { return std::string(policy::to_string(all.defaults.error_feedback)); }));
  add(table, "chunk on the wire", {"56KiB", [] { return chunk_text(CallOptions().chunk_bytes); }},
      {"56KiB", [] { return chunk_text(c_call().chunk_bytes); }}, by_policy(), by_policy(),
      of_policy("56KiB", [](const Policy& all) { return chunk_text(all.chunk_bytes); }));
  add(table, "frames in flight", {"64MiB", [] { return format_bytes(CommunicatorOptions().in_flight_bytes); }},
      {"64MiB", [] { return format_bytes(c_communicator().in_flight_bytes); }}, by_policy(), by_policy(),
      of_policy("64MiB", [](const Policy& all) { return format_bytes(all.in_flight_bytes); }));
  add(table, "ranks of a node", {kByTransport, [] { return nodes_text(CommunicatorOptions().ranks_per_node); }},
      {kByTransport, [] { return nodes_text(c_communicator().ranks_per_node); }}, by_policy(), by_policy(),
      of_policy(kByTransport, [](const Policy& all) { return nodes_text(all.tiers.ranks_per_node); }));
  add(table, "link", {"unknown", [] { return given(CommunicatorOptions().link, "unknown"); }},
      {"unknown", [] { return given(c_communicator().link, "unknown"); }}, by_policy(), by_policy(),
      of_policy("unknown", [](const Policy& all) { return given(all.link, "unknown"); }));
  add(table, "checksum", {kByTransport, [] { return text(CommunicatorOptions().checksum); }},
      {kByTransport, [] { return text(c_communicator().checksum); }},
      {kByTransport, [] { return text(SessionOptions().checksum); }},
      {kByTransport, [] { return text(c_session().checksum); }}, nothing());
}

// Adds the defaults of timeouts and checks.
void add_waits_and_checks(DefaultTable& table) {
  add(table, "timeout of a wait", {"5 min", [] { return text(CommunicatorOptions().timeout); }},
      {"5 min", [] { return text(c_communicator().timeout); }},
      {"5 min", [] { return text(SessionOptions().timeout); }}, {"5 min", [] { return text(c_session().timeout); }},
      nothing());
  add(table, "threading", {"the caller"}, {"the caller"},
      {"background", [] { return text(SessionOptions().threading); }},
      {"background", [] { return text(c_session().threading); }}, nothing());
  add(table, "NaN and Inf", {"propagate"}, {"propagate"}, {"auto", [] { return text(SessionOptions().nonfinite); }},
      {"auto", [] { return text(c_session().nonfinite); }}, nothing());
  add(table, "results compared across ranks", nothing(), nothing(),
      {"never", [] { return steps_text(SessionOptions().compare_ranks_every); }},
      {"never", [] { return steps_text(c_session().compare_ranks_every); }}, nothing());
  add(table, "error measured", nothing(), nothing(), {"off", [] { return text(SessionOptions().measure_error); }},
      {"off", [] { return text(c_session().measure_error); }}, nothing());
}

}  // namespace

DefaultTable call_and_session_defaults() {
  DefaultTable table{.title = "Calls and sessions",
                     .columns = {"C++ calls", "C calls", "C++ sessions", "C sessions", "policy files"}};
  add_codecs(table);
  add_exchange(table);
  add_waits_and_checks(table);
  return table;
}

}  // namespace gradwire::test
