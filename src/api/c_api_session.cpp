// gradwire.h: sessions.
#include "api/c_api.hpp"

using gradwire::TensorId;
using gradwire::View;
using gradwire::api::guard;
using gradwire::api::required;
using gradwire::api::session_of;

extern "C" {

int gradwire_session_rank(const gradwire_session* session) { return session == nullptr ? -1 : session->session.rank(); }

int gradwire_session_world_size(const gradwire_session* session) {
  return session == nullptr ? -1 : session->session.world_size();
}

gradwire_status gradwire_session_add(gradwire_session* session, const char* name, void* gradient, uint64_t count,
                                     gradwire_dtype dtype, uint32_t* tensor) {
  const char* function = __func__;
  return guard([&] {
    const TensorId id =
        session_of(session, function)
            .add(name == nullptr ? "" : name, View{gradient, count, gradwire::api::dtype_of(dtype, function)});
    if (tensor != nullptr) {
      *tensor = static_cast<uint32_t>(id);
    }
  });
}

gradwire_status gradwire_session_ready(gradwire_session* session, uint32_t tensor) {
  const char* function = __func__;
  return guard([&] { session_of(session, function).ready(TensorId{tensor}); });
}

gradwire_status gradwire_session_ready_zero(gradwire_session* session, uint32_t tensor) {
  const char* function = __func__;
  return guard([&] { session_of(session, function).ready_zero(TensorId{tensor}); });
}

gradwire_status gradwire_session_finish(gradwire_session* session, gradwire_step_outcome* outcome) {
  const char* function = __func__;
  return guard([&] {
    gradwire::api::check_struct_size(outcome, "gradwire_step_outcome");
    const gradwire::StepOutcome found = session_of(session, function).finish();
    const gradwire_step_outcome values{.struct_size = sizeof values,
                                       .step = found.step,
                                       .skipped = found.skipped ? 1 : 0,
                                       .nonfinite = found.nonfinite ? 1 : 0};
    gradwire::api::write_struct(values, outcome);
  });
}

gradwire_status gradwire_session_broadcast(gradwire_session* session, void* values, uint64_t count,
                                           gradwire_dtype dtype, int root) {
  const char* function = __func__;
  return guard([&] {
    session_of(session, function).broadcast(View{values, count, gradwire::api::dtype_of(dtype, function)}, root);
  });
}

gradwire_status gradwire_session_set_weight(gradwire_session* session, double samples) {
  const char* function = __func__;
  return guard([&] { session_of(session, function).set_weight(samples); });
}

gradwire_status gradwire_session_set_loss_scale(gradwire_session* session, double scale) {
  const char* function = __func__;
  return guard([&] { session_of(session, function).set_loss_scale(scale); });
}

gradwire_status gradwire_session_flush(gradwire_session* session) {
  const char* function = __func__;
  return guard([&] { session_of(session, function).flush(); });
}

gradwire_status gradwire_session_save(gradwire_session* session, const char* directory) {
  const char* function = __func__;
  return guard([&] {
    session_of(session, function)
        .save(std::filesystem::path(&required(directory, function, "directory", "the name of one")));
  });
}

gradwire_status gradwire_session_load(gradwire_session* session, const char* directory) {
  const char* function = __func__;
  return guard([&] {
    session_of(session, function)
        .load(std::filesystem::path(&required(directory, function, "directory", "the name of one")));
  });
}

gradwire_status gradwire_session_statistics(const gradwire_session* session, gradwire_statistics* statistics) {
  const char* function = __func__;
  return guard([&] {
    required(statistics, function, "statistics");
    gradwire::api::check_struct_size(statistics, "gradwire_statistics");
    const gradwire::Statistics all = session_of(session, function).statistics().all();
    gradwire::api::write_struct(gradwire::api::statistics_of(all), statistics);
  });
}

void gradwire_session_destroy(gradwire_session* session) { delete session; }

}  // extern "C"
