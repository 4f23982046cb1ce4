// The functions that play the features of the matrix: each makes the objects it needs, uses the feature, and checks the
// results, in C++ at a place, in C in a world of this process alone.
#pragma once

#include "tests/support_matrix/matrix.hpp"

namespace gradwire::support {

namespace play {  // play_sessions.cpp, play_state.cpp, play_calls.cpp
void codecs(Place);
void packed(Place);
void feedback(Place);
void narrow_residuals(Place);
void automatic(Place);
void hierarchical(Place);
void deterministic_hierarchical(Place);
void dense(Place);
void small_steps(Place);
void dtypes(Place);
void scales(Place);
void scales_in_modes(Place);
void other_address(Place);
void measure_error(Place);
void checksum(Place);
void compare_ranks(Place);
void local_steps(Place);
void outer(Place);
void late_results(Place);
void scale_under_outer(Place);
void rows_of_a_tensor(Place);
void max_error(Place);
void weights(Place);
void loss_scale(Place);
void no_sync(Place);
void tickets(Place);
void flush(Place);
void broadcast(Place);
void reserve(Place);
void capture(Place);
void captured_weights(Place);
void link(Place);
void batch(Place);
void explain(Place);
void folder(Place);
void stream(Place);
void checkpoint(Place);
void record_gradients(Place);
void going_on(Place);
void world_change(Place);
void share(Place);
void spares(Place);
void joining(Place);
void confirm(Place);
void all_reduce(Place);
void automatic_calls(Place);
void hierarchical_calls(Place);
void weighted_calls(Place);
void feedback_of_calls(Place);
void other_calls(Place);
void checked_calls(Place);
void captured_calls(Place);
void tables_of_sessions(Place);
void table(Place);
void optimizers(Place);
}  // namespace play

namespace play_in_c {  // play_c.cpp
void codecs();
void packed();
void feedback();
void narrow_residuals();
void automatic();
void hierarchical();
void dense();
void small_steps();
void dtypes();
void scales();
void scales_in_modes();
void other_address();
void checksum();
void compare_ranks();
void local_steps();
void outer();
void late_results();
void scale_under_outer();
void rows_of_a_tensor();
void max_error();
void weights();
void loss_scale();
void no_sync();
void tickets();
void flush();
void broadcast();
void reserve();
void link();
void batch();
void explain();
void folder();
void all_reduce();
void automatic_calls();
void hierarchical_calls();
void feedback_of_calls();
void other_calls();
void checked_calls();
void tables_of_sessions();
void table();
}  // namespace play_in_c

}  // namespace gradwire::support
