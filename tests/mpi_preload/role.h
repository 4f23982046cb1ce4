/* Declarations for a program that plays a Python which loads MPI with a module. All its parts are plain C, so that the
   tests need no Fortran compiler. */
#pragma once

/* Makes MPI's sums in every way from C and as Fortran does, now and when the process exits; its exit status tells
   whether they were right. */
int role_work(void);
