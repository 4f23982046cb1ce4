// A libnccl without a GPU: communicators are made, counted and freed; collectives are counted and move no data.
#pragma once

extern "C" {
/// Returns how often pncclX ran in this process; `name` is "ncclX".
long fake_nccl_calls(const char* name);
/// Prints all calls since the last time in their order, sums and sends with their counts.
void fake_nccl_print_order();
/// Returns the number of communicators that were made and not yet freed.
int fake_nccl_alive();
/// The next Destroy or Abort fails and frees nothing.
void fake_nccl_refuse_end();
/// The next Send fails.
void fake_nccl_refuse_send();
}
