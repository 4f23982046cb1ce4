/* A program in the role of a Python that loads MPI with a module: what its parts share. Each is plain C, so that the
   tests run where there is no Fortran compiler. */
#pragma once

/* Makes MPI's sums in every way from C and as Fortran does, now and as the process exits, whose status tells whether
   they were right. */
int role_work(void);
