//! Places that are few, shared by many: connections, sockets, lookups of names.
//!
//! **No member starves another.** Half of the places is divided evenly among the members. A member
//! that has less than its part of that half always finds a place. The other half goes to whoever
//! comes first. One that is alone has all, or leaves a part for a member that may yet come.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::Notify;

/// Places, and who has them.
pub struct Shares {
    total: usize,
    /// One more part is kept for a member that may yet come.
    keeps_for_next: bool,
    /// What bounds the places, in words behind their number.
    bound: &'static str,
    members: Mutex<BTreeMap<String, Count>>,
    freed: Notify,
}

#[derive(Default)]
struct Count {
    /// Handles of the member, and places that it has.
    handles: usize,
    taken: usize,
    /// How many places it had when a refusal was last told.
    told_at: Option<usize>,
}

/// One that takes places. Members of the same name are one.
pub struct Member {
    shares: Arc<Shares>,
    name: String,
}

/// A place, free again when it is dropped.
pub struct Taken(Member);

/// There is no place for this member now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Full {
    /// Places that it has.
    pub own: usize,
    /// Places in all.
    pub total: usize,
    /// It has not been told since the member had half as many.
    pub is_news: bool,
    bound: &'static str,
}

impl fmt::Display for Full {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Full { own, total, bound, .. } = self;
        if own == total {
            return write!(f, "{total} connections{bound} are open, which is the most");
        }
        write!(f, "{own} connections are open; the rest of {total}{bound} is for others")
    }
}

impl Shares {
    /// This many places. `bound` says in words what bounds them, if that is not the program itself.
    pub fn new(total: usize, keeps_for_next: bool, bound: &'static str) -> Arc<Self> {
        Arc::new(Shares { total, keeps_for_next, bound, members: Mutex::default(), freed: Notify::new() })
    }

    /// A member of this name.
    pub fn join(self: &Arc<Self>, name: impl Into<String>) -> Member {
        let name = name.into();
        self.lock().entry(name.clone()).or_default().handles += 1;
        Member { shares: self.clone(), name }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Count>> {
        self.members.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether a member may take one more place.
    fn has_room(&self, members: &BTreeMap<String, Count>, name: &str) -> bool {
        let taken: usize = members.values().map(|member| member.taken).sum();
        let free = self.total.saturating_sub(taken);
        let parts = members.len() + usize::from(self.keeps_for_next);
        // Alone, one needs no part.
        let part = if parts > 1 { (self.total / 2 / parts).max(1) } else { self.total };
        let own = members.get(name).map_or(0, |member| member.taken);
        if own < part {
            return free > 0;
        }
        let others = members.iter().filter(|(other, _)| *other != name);
        let kept: usize = others.map(|(_, member)| part.saturating_sub(member.taken)).sum();
        free > kept + if self.keeps_for_next { part } else { 0 }
    }
}

impl Member {
    /// Takes a place.
    ///
    /// # Errors
    /// [`Full`].
    pub fn take(&self) -> Result<Taken, Full> {
        let mut members = self.shares.lock();
        let has_room = self.shares.has_room(&members, &self.name);
        let member = members.entry(self.name.clone()).or_default();
        if has_room {
            member.taken += 1;
            member.handles += 1;
            return Ok(Taken(Member { shares: self.shares.clone(), name: self.name.clone() }));
        }
        let own = member.taken;
        let is_news = member.told_at.is_none();
        member.told_at.get_or_insert(own);
        Err(Full { own, total: self.shares.total, is_news, bound: self.shares.bound })
    }

    /// Waits for a place.
    pub async fn wait(&self) -> Taken {
        loop {
            let mut freed = std::pin::pin!(self.shares.freed.notified());
            freed.as_mut().enable();
            match self.take() {
                Ok(taken) => return taken,
                Err(_) => freed.await,
            }
        }
    }
}

impl Clone for Member {
    fn clone(&self) -> Self {
        self.shares.join(self.name.clone())
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        let mut members = self.shares.lock();
        if let Some(member) = members.get_mut(&self.name) {
            member.handles -= 1;
            if member.handles == 0 {
                members.remove(&self.name);
            }
        }
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        if let Some(member) = self.0.shares.lock().get_mut(&self.0.name) {
            member.taken -= 1;
            member.told_at = member.told_at.filter(|at| member.taken > at / 2);
        }
        self.0.shares.freed.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn fill(member: &Member) -> Vec<Taken> {
        std::iter::from_fn(|| member.take().ok()).collect()
    }

    #[test]
    fn one_that_is_alone_has_all_and_two_have_a_quarter_at_least() {
        let shares = Shares::new(1024, false, "");
        let a = shares.join("a");
        assert_eq!(fill(&a).len(), 1024);
        let b = shares.join("b");
        let of_a = fill(&a);
        assert_eq!(of_a.len(), 768);
        assert_eq!(fill(&b).len(), 256);
        drop(of_a);
        assert_eq!(fill(&b).len(), 768);
        // One that is gone keeps nothing.
        drop(a);
        assert_eq!(fill(&b).len(), 1024);
    }

    #[test]
    fn a_place_is_left_for_who_comes_next() {
        let shares = Shares::new(100, true, "");
        let a = shares.join("a");
        let _of_a = fill(&a);
        for n in 0..10 {
            let next = shares.join(format!("next {n}"));
            assert!(next.take().is_ok(), "{n}");
        }
    }

    #[test]
    fn a_limit_is_told_once_until_half_is_free() {
        let shares = Shares::new(8, false, " (ulimit -n)");
        let a = shares.join("a");
        let mut all = fill(&a);
        // `fill` was the first to hear of it.
        let full = a.take().err().expect("full");
        assert_eq!(full.to_string(), "8 connections (ulimit -n) are open, which is the most");
        assert!(!full.is_news);
        for _ in 0..3 {
            all.pop();
            all.push(a.take().expect("a place"));
            assert!(!a.take().err().expect("full").is_news);
        }
        all.truncate(4);
        all.extend(fill(&a));
        assert_eq!(all.len(), 8);
        all.truncate(4);
        while let Ok(taken) = a.take() {
            all.push(taken);
        }
        all.truncate(4);
        all.extend((0..4).map(|_| a.take().expect("a place")));
        assert!(a.take().err().expect("full").is_news);
        let b = shares.join("b");
        all.truncate(6);
        assert_eq!(
            a.take().err().expect("full").to_string(),
            "6 connections are open; the rest of 8 (ulimit -n) is for others"
        );
        assert!(b.take().is_ok());
    }

    #[tokio::test]
    async fn who_waits_gets_what_is_freed() {
        let shares = Shares::new(1, false, "");
        let a = shares.join("a");
        let taken = a.wait().await;
        let waiting = tokio::spawn(async move { drop(a.wait().await) });
        tokio::task::yield_now().await;
        assert!(!waiting.is_finished());
        drop(taken);
        waiting.await.expect("a place");
        assert!(shares.lock().is_empty(), "nothing is kept of who is gone");
    }

    proptest! {
        /// Whoever takes what, in whatever order: a member with less than its part finds a place,
        /// if all were there from the beginning.
        #[test]
        fn nobody_starves(
            total in 2usize..200,
            count in 2usize..20,
            steps in proptest::collection::vec((any::<usize>(), any::<bool>()), 0..600),
        ) {
            let count = count.min(total / 2);
            let shares = Shares::new(total, false, "");
            let members: Vec<Member> = (0..count).map(|n| shares.join(format!("{n}"))).collect();
            let mut taken: Vec<Vec<Taken>> = members.iter().map(|_| Vec::new()).collect();
            for (who, takes) in steps {
                let who = who % count;
                let has_less = count > 1 && taken[who].len() < (total / 2 / count).max(1);
                if !takes {
                    taken[who].pop();
                } else if let Ok(place) = members[who].take() {
                    taken[who].push(place);
                } else {
                    prop_assert!(!has_less, "{who} of {count} has {} of {total}", taken[who].len());
                }
                prop_assert!(taken.iter().map(Vec::len).sum::<usize>() <= total);
            }
        }
    }
}
