// gradwire.h: reports of a session about itself.
#include "api/c_api.hpp"

using gradwire::api::guard;
using gradwire::api::required;
using gradwire::api::session_of;
using gradwire::api::write_struct;
using gradwire::api::write_text;

extern "C" {

gradwire_status gradwire_session_step(const gradwire_session* session, uint64_t* step) {
  const char* function = __func__;
  return guard([&] {
    const gradwire::Session& of = session_of(session, function);
    required(step, function, "step", "where to write it") = of.step();
  });
}

gradwire_status gradwire_session_residual_bytes(gradwire_session* session, uint64_t* bytes) {
  const char* function = __func__;
  return guard([&] {
    gradwire::Session& of = session_of(session, function);
    required(bytes, function, "bytes", "where to write them") = of.residual_bytes();
  });
}

gradwire_status gradwire_session_link(gradwire_session* session, gradwire_link_estimate* link) {
  const char* function = __func__;
  return guard([&] {
    gradwire::Session& of = session_of(session, function);
    required(link, function, "link");
    gradwire::api::check_struct_size(link, "gradwire_link_estimate");
    const gradwire::LinkEstimate found = of.link();
    const bool tiers = found.ranks_per_node > 1;
    const gradwire_link_estimate values{.struct_size = sizeof values,
                                        .ranks_per_node = static_cast<uint64_t>(found.ranks_per_node),
                                        .inter_latency_seconds = found.inter.latency_seconds,
                                        .inter_bytes_per_second = found.inter.bytes_per_second,
                                        .intra_latency_seconds = tiers ? found.intra.latency_seconds : 0,
                                        .intra_bytes_per_second = tiers ? found.intra.bytes_per_second : 0,
                                        .measured_in_seconds = found.measured_in_seconds};
    write_struct(values, link);
  });
}

gradwire_status gradwire_session_batch_advice(const gradwire_session* session, gradwire_batch_advice* advice) {
  const char* function = __func__;
  return guard([&] {
    const gradwire::Session& of = session_of(session, function);
    required(advice, function, "advice");
    gradwire::api::check_struct_size(advice, "gradwire_batch_advice");
    const gradwire::BatchAdvice found = of.batch_advice();
    const gradwire_batch_advice values{.struct_size = sizeof values,
                                       .step = found.step,
                                       .accumulation = found.accumulation,
                                       .learning_rate_factor = found.learning_rate_factor,
                                       .exposed_share = found.exposed_share,
                                       .noise_scale = found.noise_scale.value_or(-1)};
    write_struct(values, advice);
  });
}

gradwire_status gradwire_session_statistics(const gradwire_session* session, gradwire_statistics* statistics) {
  const char* function = __func__;
  return guard([&] {
    required(statistics, function, "statistics");
    gradwire::api::check_struct_size(statistics, "gradwire_statistics");
    const gradwire::Statistics all = session_of(session, function).statistics().all();
    write_struct(gradwire::api::statistics_of(all), statistics);
  });
}

gradwire_status gradwire_session_reset_statistics(gradwire_session* session) {
  const char* function = __func__;
  return guard([&] { session_of(session, function).reset_statistics(); });
}

gradwire_status gradwire_session_note(gradwire_session* session, const char* name, double value) {
  const char* function = __func__;
  return guard([&] {
    required(name, function, "name");
    session_of(session, function).note(name, value);
  });
}

gradwire_status gradwire_session_explain(gradwire_session* session, char* buffer, uint64_t size, uint64_t* length) {
  const char* function = __func__;
  return guard([&] { write_text(session_of(session, function).explain(), buffer, size, length, function); });
}

gradwire_status gradwire_session_fingerprint(gradwire_session* session, char* buffer, uint64_t size, uint64_t* length) {
  const char* function = __func__;
  return guard([&] { write_text(session_of(session, function).fingerprint(), buffer, size, length, function); });
}

gradwire_status gradwire_session_statistics_json(const gradwire_session* session, char* buffer, uint64_t size,
                                                 uint64_t* length) {
  const char* function = __func__;
  return guard(
      [&] { write_text(session_of(session, function).statistics().to_json(), buffer, size, length, function); });
}

gradwire_status gradwire_session_statistics_text(const gradwire_session* session, char* buffer, uint64_t size,
                                                 uint64_t* length) {
  const char* function = __func__;
  return guard(
      [&] { write_text(session_of(session, function).statistics().to_text(), buffer, size, length, function); });
}

}  // extern "C"
