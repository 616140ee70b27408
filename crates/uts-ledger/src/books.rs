//! The accounts of a ledger: who holds what, and who waits.

use super::{Amounts, COUNT, Refused, Resource, Shared};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::time::Instant;

/// All accounts.
#[derive(Default)]
pub(super) struct Books {
    accounts: BTreeMap<Arc<str>, Account>,
    held: Amounts,
    waiting: Amounts,
    /// Amounts that those hold who wait for something.
    kept: Amounts,
    /// The next number of a connection or of one that waits.
    next: u64,
    /// Lines that count, by the time at which they no longer do.
    lines: VecDeque<(Instant, Arc<str>, u64)>,
    /// Places that may be taken back.
    pub(super) places: BTreeMap<u64, super::place::Held>,
}

/// Account of a payer.
#[derive(Default)]
struct Account {
    held: Amounts,
    waiting: Amounts,
    connections: BTreeMap<u64, Entry>,
    /// Amounts that it held when a refusal was last told.
    told_at: [Option<usize>; COUNT],
}

/// Account of one of its connections.
#[derive(Default)]
struct Entry {
    held: Amounts,
    waiting: [VecDeque<Waiter>; COUNT],
}

/// One that waits.
pub(super) struct Waiter {
    pub(super) id: u64,
    pub(super) least: usize,
    pub(super) most: usize,
    pub(super) granted: oneshot::Sender<usize>,
}

/// A payer's name, and the number of one of its connections.
pub(super) type Who<'a> = (&'a Arc<str>, u64);

impl Books {
    pub(super) fn join(&mut self, name: &str) -> (Arc<str>, u64) {
        let connection = self.number();
        let name = match self.accounts.get_key_value(name) {
            Some((name, _)) => name.clone(),
            None => Arc::from(name),
        };
        let account = self.accounts.entry(name.clone()).or_default();
        account.connections.insert(connection, Entry::default());
        (name, connection)
    }

    /// A number that was not given before.
    pub(super) fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    /// A connection is over. All that it held has been given back, but lines that it wrote.
    pub(super) fn leave(&mut self, shared: &Shared, name: &Arc<str>, connection: u64) {
        let Some(account) = self.accounts.get_mut(name) else { return };
        account.connections.remove(&connection);
        self.drop_if_empty(name);
        // Parts are larger with one payer fewer.
        for resource in Resource::ALL {
            self.settle(shared, resource);
        }
    }

    /// An account without connections is kept while lines count that were written for it: who comes
    /// again and again writes no more than who stays.
    fn drop_if_empty(&mut self, name: &Arc<str>) {
        let is_empty = |account: &Account| !account.is_present() && account.held == [0; COUNT];
        if self.accounts.get(name).is_some_and(is_empty) {
            self.accounts.remove(name);
        }
    }

    /// Amount that a connection may take, from `least` to `most`, if that is to be had. The amount
    /// that its payer may take is divided among the payer's connections as all there is among
    /// payers.
    fn room(
        &self,
        shared: &Shared,
        (name, connection): Who<'_>,
        resource: Resource,
        (least, most): (usize, usize),
    ) -> Option<usize> {
        let (at, keeps) = (resource as usize, shared.keeps_for_next);
        let all = shared.totals[at];
        let left = all.saturating_sub(self.held[at]);
        // The last of it is for those who hold none.
        let kept = if keeps { all / 8 } else { 0 };
        let (total, free) = (all - kept, left.saturating_sub(kept));
        // Most often there is so much that nobody has to be asked.
        if free.saturating_sub(total - total / 4) >= most {
            return Some(most);
        }
        let account = self.accounts.get(name)?;
        let own = account.connections.get(&connection).map_or(0, |entry| entry.held[at]);
        let others = self.accounts.iter().filter(|(other, account)| *other != name && account.is_present());
        let others = others.map(|(_, account)| account.held[at]);
        let of_payer = share(total, free, account.held[at], others, keeps);
        let others = account.connections.iter().filter(|(other, _)| **other != connection);
        let others = others.map(|(_, entry)| entry.held[at]);
        let room = share(account.held[at] + of_payer, of_payer, own, others, keeps);
        if room >= least {
            return Some(most.min(room));
        }
        let is_first =
            (own == 0 && left.saturating_sub(kept / 2) >= least) || (account.held[at] == 0 && left >= least);
        (keeps && is_first).then_some(least)
    }

    /// Takes from `least` to `most`, if there is room for the least.
    pub(super) fn take(
        &mut self,
        shared: &Shared,
        (name, connection): Who<'_>,
        resource: Resource,
        least: usize,
        most: usize,
    ) -> Result<usize, Refused> {
        let at = resource as usize;
        if let Some(amount) = self.room(shared, (name, connection), resource, (least, most)) {
            self.add((name, connection), at, amount);
            return Ok(amount);
        }
        let account = self.accounts.entry(name.clone()).or_default();
        let own = account.held[at];
        let is_news = account.told_at[at].is_none();
        account.told_at[at].get_or_insert(own);
        Err(Refused { resource, own, total: shared.totals[at], is_news })
    }

    fn add(&mut self, (name, connection): Who<'_>, at: usize, amount: usize) {
        let account = self.accounts.entry(name.clone()).or_default();
        account.held[at] += amount;
        if let Some(entry) = account.connections.get_mut(&connection) {
            entry.held[at] += amount;
        }
        self.held[at] += amount;
    }

    pub(super) fn give_back(
        &mut self,
        shared: &Shared,
        (name, connection): Who<'_>,
        resource: Resource,
        amount: usize,
    ) {
        let at = resource as usize;
        self.held[at] = self.held[at].saturating_sub(amount);
        if let Some(account) = self.accounts.get_mut(name) {
            account.held[at] = account.held[at].saturating_sub(amount);
            let held = account.held[at];
            account.told_at[at] = account.told_at[at].filter(|told| held > told / 2);
            if let Some(entry) = account.connections.get_mut(&connection) {
                entry.held[at] = entry.held[at].saturating_sub(amount);
            }
        }
        self.settle(shared, resource);
    }

    /// Has one wait; says its number.
    pub(super) fn queue(
        &mut self,
        shared: &Shared,
        (name, connection): Who<'_>,
        resource: Resource,
        waiter: Waiter,
    ) -> u64 {
        let (id, at) = (self.number(), resource as usize);
        if let Some(account) = self.accounts.get_mut(name)
            && let Some(entry) = account.connections.get_mut(&connection)
        {
            entry.waiting[at].push_back(Waiter { id, ..waiter });
            account.waiting[at] += 1;
            self.waiting[at] += 1;
        }
        // Something may have been given back since it was refused.
        self.settle(shared, resource);
        id
    }

    /// Leaves the queue. True if it still waited.
    pub(super) fn leave_queue(&mut self, (name, connection): Who<'_>, resource: Resource, id: u64) -> bool {
        let at = resource as usize;
        let Some(account) = self.accounts.get_mut(name) else { return false };
        let Some(entry) = account.connections.get_mut(&connection) else { return false };
        let Some(place) = entry.waiting[at].iter().position(|waiter| waiter.id == id) else { return false };
        entry.waiting[at].remove(place);
        account.waiting[at] -= 1;
        self.waiting[at] -= 1;
        true
    }

    /// So much of what is held is not given back for now.
    pub(super) fn keep(&mut self, shared: &Shared, resource: Resource, amount: usize) {
        if amount > 0 {
            self.kept[resource as usize] += amount;
            self.settle(shared, resource);
        }
    }

    pub(super) fn keep_no_more(&mut self, resource: Resource, amount: usize) {
        self.kept[resource as usize] -= amount;
    }

    /// Gives what there is to those who wait: the payer that holds the least first, of its
    /// connections that which holds the least, of these who has waited longest.
    fn settle(&mut self, shared: &Shared, resource: Resource) {
        let at = resource as usize;
        while self.waiting[at] > 0 {
            let waiting = self.accounts.iter().filter(|(_, account)| account.waiting[at] > 0);
            let mut next: Vec<_> =
                waiting.filter_map(|(name, account)| Some((account.turn(at)?, name))).collect();
            next.sort_unstable_by_key(|(turn, _)| (turn.held_by_payer, turn.id));
            let found = next.iter().find_map(|(turn, name)| {
                let wanted = (turn.least, turn.most);
                let amount = self.room(shared, (name, turn.connection), resource, wanted)?;
                Some(((*name).clone(), turn.connection, amount))
            });
            let is_stuck = self.kept[at] >= self.held[at];
            let first = || next.first().map(|(turn, name)| ((*name).clone(), turn.connection, turn.least));
            let Some((name, connection, amount)) = found.or_else(|| first().filter(|_| is_stuck)) else {
                return;
            };
            self.add((&name, connection), at, amount);
            let Some(account) = self.accounts.get_mut(&name) else { return };
            let waiter = account.connections.get_mut(&connection).and_then(|e| e.waiting[at].pop_front());
            account.waiting[at] -= 1;
            self.waiting[at] -= 1;
            if let Some(waiter) = waiter {
                // Who gives up leaves the queue first, under the same lock.
                let _ = waiter.granted.send(amount);
            }
        }
    }

    pub(super) fn remember_line(&mut self, name: &Arc<str>, connection: u64, lasts: Duration) {
        self.lines.push_back((Instant::now() + lasts, name.clone(), connection));
    }

    /// Lines that are older than a minute no longer count.
    pub(super) fn forget_lines(&mut self) {
        let (now, at) = (Instant::now(), Resource::Lines as usize);
        while let Some((_, name, connection)) = self.lines.pop_front_if(|(until, ..)| *until <= now) {
            self.held[at] -= 1;
            if let Some(account) = self.accounts.get_mut(&name) {
                account.held[at] -= 1;
                if let Some(entry) = account.connections.get_mut(&connection) {
                    entry.held[at] -= 1;
                }
            }
            self.drop_if_empty(&name);
        }
    }

    pub(super) fn held(&self, resource: Resource) -> usize {
        self.held[resource as usize]
    }

    pub(super) fn waiting(&self, resource: Resource) -> usize {
        self.waiting[resource as usize]
    }

    /// Amount that a payer holds.
    pub(super) fn held_by(&self, name: &Arc<str>, resource: Resource) -> usize {
        self.accounts.get(name).map_or(0, |account| account.held[resource as usize])
    }

    /// All who hold any of a resource.
    pub(super) fn holders(&self, resource: Resource) -> Vec<(String, usize)> {
        let held = self.accounts.iter().map(|(name, account)| (name, account.held[resource as usize]));
        held.filter(|(_, held)| *held > 0).map(|(name, held)| (name.to_string(), held)).collect()
    }

    /// True if nobody is there.
    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.accounts.is_empty() && self.held == [0; COUNT] && self.places.is_empty()
    }
}

/// Whose turn it is of a payer's connections, and what is waited for.
struct Turn {
    held_by_payer: usize,
    connection: u64,
    id: u64,
    least: usize,
    most: usize,
}

impl Account {
    fn is_present(&self) -> bool {
        !self.connections.is_empty()
    }

    /// Of the connections that wait, that which holds the least; of equals, who has waited longest.
    fn turn(&self, at: usize) -> Option<Turn> {
        let waiting = self
            .connections
            .iter()
            .filter_map(|(n, entry)| Some((n, entry.held[at], entry.waiting[at].front()?)));
        let (connection, _, waiter) = waiting.min_by_key(|(_, held, waiter)| (*held, waiter.id))?;
        let Waiter { id, least, most, .. } = waiter;
        let (held_by_payer, connection) = (self.held[at], *connection);
        Some(Turn { held_by_payer, connection, id: *id, least: *least, most: *most })
    }
}

/// Amount that one may take that holds `own` of a total, of which so much is free: what is left of
/// its part of the half that is divided evenly, or what others leave of all.
fn share(
    total: usize,
    free: usize,
    own: usize,
    others: impl Iterator<Item = usize> + Clone,
    keeps_for_next: bool,
) -> usize {
    let parts = others.clone().count() + 1 + usize::from(keeps_for_next);
    // Alone, one needs no part.
    let part = if parts > 1 { (total / 2 / parts).max(1) } else { total };
    let within = part.saturating_sub(own).min(free);
    let kept = others.map(|held| part.saturating_sub(held)).sum::<usize>();
    let kept = kept + if keeps_for_next { part } else { 0 };
    within.max(free.saturating_sub(kept.min(total / 2)))
}
